package guest

import (
	"fmt"
	"strconv"
)

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
