package image

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"

	"unnest.io/unnest/internal/testbed/rootdir"
)

// xenHypervisor is the Debian package of the hypervisor.
const xenHypervisor = "xen-hypervisor-4.17-amd64"

// xenPackages make a guest a Xen host. The last one emulates the devices of HVM domains.
var xenPackages = []string{xenHypervisor, "xen-utils-4.17", "qemu-system-xen"}

// xenModules are the drivers that a domain needs before it has a root file system.
var xenModules = []string{"xen-blkfront", "xen-netfront", "overlay"}

// Xen returns the recipe with Xen. A guest with its image is a Xen host: Xen runs under the
// guest's kernel, which is that of dom0. Xen's domains have the same root file system.
func (r Recipe) Xen() Recipe {
	r = r.With(xenPackages...)
	r.Modules = slices.Concat(r.Modules, xenModules)
	return r
}

func (r Recipe) xen() bool { return slices.Contains(r.Packages, xenHypervisor) }

// hypervisor writes Xen of the root file system into dir, as the ELF file that QEMU enters.
func (r Recipe) hypervisor(root, dir string) error {
	if !r.xen() {
		return nil
	}
	found, err := rootdir.Dir(root).Only("boot/xen-*.gz")
	if err != nil {
		return fmt.Errorf("find Xen: %w", err)
	}
	packed, err := rootdir.Dir(root).ReadFile(found)
	if err != nil {
		return fmt.Errorf("read Xen: %w", err)
	}
	unpack, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		return fmt.Errorf("uncompress %s: %w", found, err)
	}
	elf, err := io.ReadAll(unpack)
	if err != nil {
		return fmt.Errorf("uncompress %s: %w", found, err)
	}
	return os.WriteFile(filepath.Join(dir, hypervisorFile), elf, 0o644)
}

const hypervisorFile = "xen"
