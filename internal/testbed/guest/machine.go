package guest

import (
	"strings"

	"unnest.io/unnest/internal/testbed/image"
)

// QEMU is the binary that emulates an architecture.
func QEMU(a image.Arch) string { return "qemu-system-" + a.Uname() }

// machine is QEMU's machine for an architecture.
type machine struct {
	name        string
	cpu         string   // default under TCG
	bus         string   // suffix of QEMU's virtio devices
	console     []string // QEMU's device for the character device console
	commandLine string
	firmware    bool // the seed is read from the firmware configuration device, else from a disk
	slots       bool // NICs can be hot-plugged
}

var machines = map[image.Arch]machine{
	image.AMD64: {
		// TCG clears and copies memory byte by byte if the processor has enhanced REP MOVSB/STOSB (erms).
		// fsrm goes with it: Linux 6.1 hangs at boot on a processor that has fsrm without erms. QEMU's max
		// has fsrm from version 8 on.
		name: "q35", cpu: "max,erms=off,fsrm=off", bus: "pci", console: []string{"-serial", "chardev:console"},
		commandLine: kernelCommandLine, firmware: true, slots: true,
	},
	image.ARM64: {
		// Pointer authentication by its real algorithm takes most of the time under TCG.
		name: "virt,gic-version=max", cpu: "max,pauth-impdef=on", bus: "pci", console: []string{"-serial", "chardev:console"},
		commandLine: "console=ttyAMA0 quiet panic=-1 net.ifnames=0 mitigations=off random.trust_cpu=on",
	},
	image.S390X: {
		name: "s390-ccw-virtio", cpu: "max", bus: "ccw", console: []string{"-device", "sclpconsole,chardev=console"},
		commandLine: "console=ttysclp0 quiet panic=-1 net.ifnames=0 mitigations=off random.trust_cpu=on",
	},
}

func machineOf(a image.Arch) machine { return machines[a.OrAMD64()] }

// virtio returns QEMU's virtio device of a kind, with its options.
func (m machine) virtio(kind string, options ...string) string {
	return strings.Join(append([]string{"virtio-" + kind + "-" + m.bus}, options...), ",")
}
