package guest

import (
	"fmt"
	"strconv"
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

// sharePort is the device number of the ports for shared volumes and memory. It is the
// number before those of the NICs' ports.
const sharePort = firstPort - 1

// MaxShares is the largest number of ports for shared volumes and memory.
const MaxShares = functions

// ExportTag is the tag to mount the export in the guest: mount -t 9p -o trans=virtio.
const ExportTag = "volumes"

// The chassis and slot numbers of these ports follow those of the NICs. Shared memory is
// at most shareMemory large (share.MaxMemory): the firmware reserves that much address
// space per port, and Linux does not move it later.
const (
	shareChassis = MaxSlots
	shareMemory  = 64 // MiB
)

// memoryBackend is the part of the machine option that selects the memory of
// shareArguments and snapshotArguments.
func (c Config) memoryBackend() string {
	if c.Shares == 0 && c.Snapshot == nil {
		return ""
	}
	return ",memory-backend=ram"
}

// shareArguments are the arguments for shared memory, unless snapshotArguments has it, the
// ports for volumes and memory, and the export. Volumes in the export can have files with equal inode numbers, so 9p
// has to remap them.
func (c Config) shareArguments() (args []string) {
	if c.Shares > 0 && c.Snapshot == nil {
		args = append(args, "-object", "memory-backend-memfd,id=ram,share=on,size="+strconv.FormatInt(c.Memory>>20, 10)+"M")
	}
	for i := range c.Shares {
		text := fmt.Sprintf("pcie-root-port,id=vp%d,chassis=%d,slot=%d,addr=%#x.%d,pref64-reserve=%dM",
			i+1, shareChassis+i+1, shareChassis+i+1, sharePort, i, shareMemory)
		if i == 0 {
			text += ",multifunction=on"
		}
		args = append(args, "-device", text)
	}
	if c.Export != "" {
		args = append(args, "-fsdev", "local,id=export,security_model=passthrough,multidevs=remap,path="+c.Export,
			"-device", machineOf(c.Arch).virtio("9p", "fsdev=export", "mount_tag="+ExportTag))
	}
	return args
}

// checkShares refuses what QEMU would refuse.
func (c Config) checkShares() error {
	switch a := c.Arch.OrAMD64(); {
	case c.Shares > MaxShares:
		return fmt.Errorf("%d ports for shared volumes and memory: want at most %d", c.Shares, MaxShares)
	case c.Shares > 0 && !machineOf(a).slots:
		return fmt.Errorf("%d ports for shared volumes and memory: guests of %s have no hot-plug: want 0", c.Shares, a)
	}
	return nil
}
