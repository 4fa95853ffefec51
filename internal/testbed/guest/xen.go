package guest

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"unnest/internal/testbed/rootdir"
)

// XenCPU is the processor that TCG shows to a Xen host. It has AMD's hardware virtualization with
// nested paging, which TCG emulates. It has no MONITOR, which TCG emulates in a way that ends Xen,
// and not the features of NestingCPU, with which the kernel of dom0 ends.
const XenCPU = "qemu64,+svm,+npt,-monitor"

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

// dom0Memory is what Xen gives dom0, in MiB. The domains get the rest.
const dom0Memory = 768

// XenMemory is what a guest with Xen needs before it has domains, in bytes.
const XenMemory = (dom0Memory + 256) << 20

// The command lines of Xen and of dom0's kernel. Idle states of the processor, which TCG does not
// have, would end Xen. The kernel's console is Xen's.
var (
	xenCommandLine  = fmt.Sprintf("com1=115200,8n1 console=com1 cpuidle=0 dom0_mem=%dM,max:%dM", dom0Memory, dom0Memory)
	dom0CommandLine = "console=hvc0 quiet panic=-1 net.ifnames=0 mitigations=off random.trust_cpu=on"
)

// entryArguments are QEMU's arguments for the kernel, or for Xen with dom0's kernel as its first
// module, and for the initrd.
func (c Config) entryArguments() []string {
	if c.Image.Hypervisor == "" {
		return []string{"-kernel", c.Image.Kernel, "-initrd", c.Image.Initrd, "-append", c.kernelArguments()}
	}
	line := dom0CommandLine
	if c.emulated() {
		line += FixedAddresses
	}
	modules := []string{c.Image.Compressed + " " + line, c.Image.Initrd}
	for i, m := range modules {
		modules[i] = strings.ReplaceAll(m, ",", ",,") // a comma ends a module
	}
	return []string{"-kernel", c.Image.Hypervisor, "-append", xenCommandLine, "-initrd", strings.Join(modules, ",")}
}

// seedByFirmware reports whether the guest reads its seed from the firmware configuration device.
// The other guests, and dom0, read it from a disk.
func (c Config) seedByFirmware() bool { return c.Arch.traits().firmware && c.Image.Hypervisor == "" }
