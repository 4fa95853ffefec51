package image

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"unnest.io/unnest/internal/testbed/rootdir"
)

//go:embed rootfs
var overlay embed.FS

// Recipe lists the parts of a guest image. The images of equal recipes differ by the
// date of the packages only.
type Recipe struct {
	Suite    string   // Debian release
	Arch     Arch     // empty: AMD64
	Packages []string // Debian packages beyond the minimal base
	Excluded []string // paths that are not unpacked, in dpkg's path-exclude form
	Modules  []string // kernel modules that the initrd loads, with their dependencies
	Image    []string // binaries of the container image, as paths in the root file system
	Whole    bool     // the container image is the whole root file system, not only Image
}

// kernelExcluded are directories of drivers for devices that no guest of ours has. They
// are half of the image.
var kernelExcluded = []string{
	"gpu", "media", "infiniband", "usb", "iio", "scsi", "hwmon", "staging", "hid", "md", "platform",
	"ata", "comedi", "mtd", "video", "net/wireless", "net/ethernet", "isdn", "bluetooth", "mmc", "target", "nvme",
}

// DefaultRecipe is the guest that Unnest boots: Debian's kernel and packages,
// containerd with runc and the standard CNI plugins, and the tools of the workloads,
// for the guest and its containers.
func DefaultRecipe() Recipe { return recipeOf(AMD64) }

// ArchRecipe is the same guest for another architecture. Its Debian is unpacked but not
// configured, because its scripts do not run here; see foreign.go.
func ArchRecipe(a Arch) (Recipe, error) {
	if err := a.Check(); err != nil {
		return Recipe{}, err
	}
	return recipeOf(a.OrAMD64()), nil
}

// SuiteRecipe is the default guest with the Debian packages of benchmark suites. Its
// containers have them, too: their image is the whole root file system.
func SuiteRecipe(packages []string) Recipe { return DefaultRecipe().With(packages...).whole() }

// HypervisorRecipe is the default guest with a hypervisor. Every guest's kernel has
// modules for KVM, TUN and vhost.
func HypervisorRecipe() Recipe { return DefaultRecipe().With(HypervisorPackages...) }

// HypervisorPackages are the Debian packages that a guest needs to run guests, and the host
// daemon as a service.
var HypervisorPackages = []string{"qemu-system-x86", "systemd"}

// The releases of Debian that a guest can have. Published results are of the default one.
const (
	Bookworm = "bookworm" // Debian 12, the default
	Trixie   = "trixie"   // Debian 13
)

// Releases lists the releases.
func Releases() []string { return []string{Bookworm, Trixie} }

// Of returns the recipe for another release of Debian.
func (r Recipe) Of(release string) (Recipe, error) {
	if !slices.Contains(Releases(), release) {
		return Recipe{}, fmt.Errorf("release %q: want %s", release, strings.Join(Releases(), " or "))
	}
	r.Suite, r.Excluded = release, slices.Clone(r.Excluded)
	for i, path := range r.Excluded { // since Debian 13, packages have all their files below /usr
		if release != Bookworm && strings.HasPrefix(path, "/lib/") {
			r.Excluded[i] = "/usr" + path
		}
	}
	return r, nil
}

// With returns the recipe with more Debian packages. Their order and repetitions make
// no difference.
func (r Recipe) With(packages ...string) Recipe {
	more := slices.Sorted(slices.Values(packages))
	more = slices.DeleteFunc(slices.Compact(more), func(p string) bool { return slices.Contains(r.Packages, p) })
	r.Packages = slices.Concat(r.Packages, more)
	return r
}

// emulatedDrivers are the drivers of emulated hardware, for the root disk and the first NIC. The
// root disk of an HVM domain of Xen is a CD-ROM of an IDE controller.
var emulatedDrivers = []string{"ahci", "sd_mod", "ata_piix", "sr_mod", "e1000"}

// Emulated returns the recipe with drivers for emulated hardware. Of the directories that other
// guests do not need, it keeps a small part.
func (r Recipe) Emulated() Recipe {
	r = r.WithDrives()
	r.Modules = slices.Concat(r.Modules, emulatedDrivers)
	for i, path := range r.Excluded {
		r.Excluded[i] = strings.Replace(path, "/net/ethernet/*", "/net/ethernet/[!i]*", 1)
	}
	return r
}

// WithDrives returns the recipe with drivers for ATA disks and CD-ROM drives.
func (r Recipe) WithDrives() Recipe {
	r.Excluded = slices.Clone(r.Excluded)
	for i, path := range r.Excluded {
		r.Excluded[i] = strings.Replace(path, "/scsi/*", "/scsi/[!s]*", 1)
	}
	r.Excluded = slices.DeleteFunc(r.Excluded, func(path string) bool { return strings.HasSuffix(path, "/ata/*") })
	return r
}

// Containing returns the recipe with more programs in its containers, as paths in the root
// file system.
func (r Recipe) Containing(programs ...string) Recipe {
	r.Image = slices.Concat(r.Image, programs)
	return r
}

func (r Recipe) whole() Recipe {
	r.Whole = true
	return r
}

func recipeOf(a Arch) Recipe {
	r := Recipe{
		Suite: Bookworm,
		Packages: []string{
			a.traits().kernel, "busybox-static", "kmod", "iproute2", "procps", "dropbear-bin",
			"containerd", "runc", "containernetworking-plugins", "iptables",
			"sockperf", "iperf3", "tcpdump",
		},
		Excluded: []string{"/usr/share/doc/*", "/usr/share/man/*", "/usr/share/locale/*", "/lib/modules/*/kernel/sound/*"},
		Modules:  a.traits().modules,
		Image:    []string{"/usr/bin/sockperf", "/usr/bin/iperf3", "/bin/busybox"},
	}
	for _, d := range kernelExcluded {
		r.Excluded = append(r.Excluded, "/lib/modules/*/kernel/drivers/"+d+"/*")
	}
	if a != AMD64 {
		r.Arch = a
	} else { // the servers of applications; guests of another architecture have them only where they are loaded
		r.Packages = append(r.Packages, "memcached", "nginx")
	}
	return r
}

// rootDigest identifies the Debian root file system of r. It depends on a part of the
// recipe only, so that a changed script does not unpack Debian again.
func (r Recipe) rootDigest() string {
	if a := r.Arch.OrAMD64(); a != AMD64 {
		return digest(a, configuration, r.Suite, r.Packages, r.Excluded)
	}
	return digest(r.Suite, r.Packages, r.Excluded)
}

// Digest identifies the whole image: the recipe, our own files in it, the files added to it,
// by their digests, and the options of its file system.
func (r Recipe) Digest(files map[string][]byte) (string, error) {
	own, err := overlayFiles()
	if err != nil {
		return "", err
	}
	return digest(r, r.rootDigest(), own, files, makeFileSystem), nil
}

func digest(parts ...any) string {
	h := sha256.New()
	for _, p := range parts {
		b, err := json.Marshal(p)
		if err != nil {
			panic(fmt.Sprintf("digest %T: %v", p, err)) // plain data always marshals
		}
		fmt.Fprintf(h, "%d:%s", len(b), b)
	}
	return hex.EncodeToString(h.Sum(nil))[:16]
}

// overlayPaths are the paths of our own files in the image. The first process belongs
// to the initrd.
var overlayPaths = map[string]string{
	"initrd-init":   "initrd:/init",
	"inittab":       "/etc/inittab",
	"boot":          "/etc/unnest/boot",
	"clock":         "/etc/unnest/clock",
	"engine":        "/etc/unnest/engine",
	"freeze":        "/etc/unnest/freeze",
	"nest":          "/etc/unnest/nest",
	"powerbutton":   "/etc/unnest/powerbutton",
	"acpi-powerbtn": "/etc/acpi/PWRF/00000080",
}

// overlayFiles returns the content of our own files by their path in the image.
func overlayFiles() (map[string][]byte, error) {
	files := map[string][]byte{}
	for name, target := range overlayPaths {
		content, err := overlay.ReadFile("rootfs/" + name)
		if err != nil {
			return nil, err
		}
		files[target] = content
	}
	return files, nil
}

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
