package guest

import (
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io/fs"
	"strings"
)

//go:embed rootfs
var overlay embed.FS

// Recipe says what a guest image is made of. Two equal recipes give images that
// differ only by the date of the packages.
type Recipe struct {
	Suite    string   // Debian release
	Packages []string // Debian packages beyond the minimal base
	Excluded []string // paths that are not unpacked, in dpkg's path-exclude form
	Modules  []string // kernel modules, with what they need, that the initrd loads
	Image    []string // programs of the container image, as paths in the root file system
}

// kernelExcluded are directories of drivers that no QEMU guest of ours has the
// device for; without them the image is half as large.
var kernelExcluded = []string{
	"gpu", "media", "infiniband", "usb", "iio", "scsi", "hwmon", "staging", "hid", "md", "platform",
	"ata", "comedi", "mtd", "video", "net/wireless", "net/ethernet", "isdn", "bluetooth", "mmc", "target", "nvme",
}

// DefaultRecipe is the guest that Unnest boots: Debian's stock kernel and
// packages, containerd with runc and the standard CNI plugins as container
// engine, and the measuring tools on both sides of the container's wall.
func DefaultRecipe() Recipe {
	r := Recipe{
		Suite: "bookworm",
		Packages: []string{
			"linux-image-amd64", "busybox-static", "kmod", "iproute2", "procps", "dropbear-bin",
			"containerd", "runc", "containernetworking-plugins", "iptables",
			"sockperf", "iperf3", "tcpdump",
		},
		Excluded: []string{"/usr/share/doc/*", "/usr/share/man/*", "/usr/share/locale/*", "/lib/modules/*/kernel/sound/*"},
		Modules:  []string{"virtio_pci", "virtio_blk", "ext4", "crc32c_generic", "virtio_net", "qemu_fw_cfg"},
		Image:    []string{"/usr/bin/sockperf", "/usr/bin/iperf3", "/bin/busybox"},
	}
	for _, d := range kernelExcluded {
		r.Excluded = append(r.Excluded, "/lib/modules/*/kernel/drivers/"+d+"/*")
	}
	return r
}

// rootDigest identifies the Debian root file system that r asks for: a part of
// the recipe only, so that a change of scripts does not unpack Debian again.
func (r Recipe) rootDigest() string {
	return digest(r.Suite, r.Packages, r.Excluded)
}

// Digest identifies the whole image: the recipe, our files in it, and the
// programs added to it by their content.
func (r Recipe) Digest(programs map[string][]byte) (string, error) {
	files, err := overlayFiles()
	if err != nil {
		return "", err
	}
	return digest(r, files, programs), nil
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

// overlayPaths says where each of our files goes in the image; the initrd's
// first process goes elsewhere.
var overlayPaths = map[string]string{
	"initrd-init":   "initrd:/init",
	"inittab":       "/etc/inittab",
	"boot":          "/etc/unnest/boot",
	"engine":        "/etc/unnest/engine",
	"powerbutton":   "/etc/unnest/powerbutton",
	"acpi-powerbtn": "/etc/acpi/PWRF/00000080",
}

// overlayFiles returns the content of our own files by where they go.
func overlayFiles() (map[string][]byte, error) {
	files := map[string][]byte{}
	err := fs.WalkDir(overlay, "rootfs", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		content, err := overlay.ReadFile(path)
		if err != nil {
			return err
		}
		name := strings.TrimPrefix(path, "rootfs/")
		target, ok := overlayPaths[name]
		if !ok {
			return fmt.Errorf("%s has no place in the image", name)
		}
		files[target] = content
		return nil
	})
	return files, err
}
