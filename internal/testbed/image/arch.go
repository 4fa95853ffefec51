package image

import (
	"debug/elf"
	"fmt"
	"slices"
)

// Arch is a processor architecture, by its name in Go and Debian.
type Arch string

// The architectures of guests: the first is that of the papers' x86 machines, the last
// that of FitzGerald's System z.
const (
	AMD64 Arch = "amd64"
	ARM64 Arch = "arm64"
	S390X Arch = "s390x"
)

// Arches lists the architectures.
func Arches() []Arch { return []Arch{AMD64, ARM64, S390X} }

// ParseArch parses the name of an architecture: Go's and Debian's, or that of uname -m.
func ParseArch(name string) (Arch, error) {
	for _, a := range Arches() {
		if name == string(a) || name == a.Uname() {
			return a, nil
		}
	}
	return "", fmt.Errorf("architecture %q: want amd64, arm64 or s390x", name)
}

// Uname is the architecture's name in uname -m.
func (a Arch) Uname() string { return a.traits().uname }

// traits are the properties of an architecture that its images depend on.
type traits struct {
	uname   string
	triplet string      // Debian's directory of shared libraries
	elf     elf.Machine // of its binaries
	kernel  string      // Debian's package
	modules []string    // for the root disk and the first NIC
}

var architectures = map[Arch]traits{
	AMD64: {
		uname: "x86_64", triplet: "x86_64-linux-gnu", elf: elf.EM_X86_64,
		kernel:  "linux-image-amd64",
		modules: []string{"virtio_pci", "virtio_blk", "ext4", "crc32c_generic", "virtio_net", "qemu_fw_cfg"},
	},
	ARM64: {
		uname: "aarch64", triplet: "aarch64-linux-gnu", elf: elf.EM_AARCH64,
		kernel:  "linux-image-arm64",
		modules: []string{"virtio_pci", "virtio_blk", "ext4", "crc32c_generic", "virtio_net"},
	},
	S390X: {
		uname: "s390x", triplet: "s390x-linux-gnu", elf: elf.EM_S390,
		kernel:  "linux-image-s390x",
		modules: []string{"virtio_blk", "ext4", "crc32c_generic", "virtio_net"},
	},
}

// OrAMD64 returns the architecture, AMD64 if it is empty.
func (a Arch) OrAMD64() Arch {
	if a == "" {
		return AMD64
	}
	return a
}

func (a Arch) traits() traits { return architectures[a.OrAMD64()] }

// Check refuses an unknown architecture.
func (a Arch) Check() error {
	if !slices.Contains(Arches(), a.OrAMD64()) {
		_, err := ParseArch(string(a))
		return err
	}
	return nil
}

// libraryPaths are Debian's directories of shared libraries.
func (a Arch) libraryPaths() []string {
	t := a.traits().triplet
	return []string{"lib/" + t, "usr/lib/" + t, "lib64", "lib"}
}
