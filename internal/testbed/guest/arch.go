package guest

import (
	"debug/elf"
	"fmt"
	"runtime"
	"slices"
	"strings"
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

// QEMU is the binary that emulates the architecture.
func (a Arch) QEMU() string { return "qemu-system-" + a.Uname() }

// ChooseAccel resolves want for a guest of this architecture on this machine, as the
// function ChooseAccel does. Only TCG runs a foreign architecture.
func (a Arch) ChooseAccel(want Accel) (Choice, error) {
	if a.or() == Arch(runtime.GOARCH) {
		return ChooseAccel(want)
	}
	return chooseForeign(want, a.or())
}

func chooseForeign(want Accel, a Arch) (Choice, error) {
	switch want {
	case AccelAuto, "":
		return Choice{TCG, fmt.Sprintf("the guest is %s, this machine %s", a, runtime.GOARCH)}, nil
	case KVM:
		return Choice{}, fmt.Errorf("%w: kvm: the guest is %s, this machine %s; use --accel auto or tcg", ErrAccel, a, runtime.GOARCH)
	}
	return chooseAccel(want, nil, nil)
}

// traits are the properties of an architecture.
type traits struct {
	uname       string
	triplet     string      // Debian's directory of shared libraries
	elf         elf.Machine // of its binaries
	kernel      string      // Debian's package
	modules     []string    // for the root disk and the first NIC
	machine     string      // QEMU's
	cpu         string      // default under TCG
	bus         string      // suffix of QEMU's virtio devices
	console     []string    // QEMU's device for the character device console
	commandLine string
	firmware    bool // the seed is read from the firmware configuration device, else from a disk
	slots       bool // NICs can be hot-plugged
}

var architectures = map[Arch]traits{
	AMD64: {
		uname: "x86_64", triplet: "x86_64-linux-gnu", elf: elf.EM_X86_64,
		kernel:  "linux-image-amd64",
		modules: []string{"virtio_pci", "virtio_blk", "ext4", "crc32c_generic", "virtio_net", "qemu_fw_cfg"},
		// TCG clears and copies memory byte by byte if the processor has enhanced REP MOVSB/STOSB (erms).
		// fsrm goes with it: Linux 6.1 hangs at boot on a processor that has fsrm without erms. QEMU's max
		// has fsrm from version 8 on.
		machine: "q35", cpu: "max,erms=off,fsrm=off", bus: "pci", console: []string{"-serial", "chardev:console"},
		commandLine: kernelCommandLine, firmware: true, slots: true,
	},
	ARM64: {
		uname: "aarch64", triplet: "aarch64-linux-gnu", elf: elf.EM_AARCH64,
		kernel:  "linux-image-arm64",
		modules: []string{"virtio_pci", "virtio_blk", "ext4", "crc32c_generic", "virtio_net"},
		// Pointer authentication by its real algorithm takes most of the time under TCG.
		machine: "virt,gic-version=max", cpu: "max,pauth-impdef=on", bus: "pci", console: []string{"-serial", "chardev:console"},
		commandLine: "console=ttyAMA0 quiet panic=-1 net.ifnames=0 mitigations=off random.trust_cpu=on",
	},
	S390X: {
		uname: "s390x", triplet: "s390x-linux-gnu", elf: elf.EM_S390,
		kernel:  "linux-image-s390x",
		modules: []string{"virtio_blk", "ext4", "crc32c_generic", "virtio_net"},
		machine: "s390-ccw-virtio", cpu: "max", bus: "ccw", console: []string{"-device", "sclpconsole,chardev=console"},
		commandLine: "console=ttysclp0 quiet panic=-1 net.ifnames=0 mitigations=off random.trust_cpu=on",
	},
}

// or returns the architecture, AMD64 if it is empty.
func (a Arch) or() Arch {
	if a == "" {
		return AMD64
	}
	return a
}

func (a Arch) traits() traits { return architectures[a.or()] }

// check refuses an unknown architecture.
func (a Arch) check() error {
	if !slices.Contains(Arches(), a.or()) {
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

// virtio returns QEMU's virtio device of a kind, with its options.
func (t traits) virtio(kind string, options ...string) string {
	return strings.Join(append([]string{"virtio-" + kind + "-" + t.bus}, options...), ",")
}
