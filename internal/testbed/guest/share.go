package guest

import (
	"fmt"
	"strconv"
)

// sharePort is the machine's device number whose functions are the ports for what is
// shared: the one before the NICs' ports.
const sharePort = firstPort - 1

// MaxShares is the most ports for what is shared that a guest can have.
const MaxShares = functions

// ExportTag is by what the guest mounts its export: mount -t 9p -o trans=virtio.
const ExportTag = "volumes"

// Chassis and slot numbers of the ports for what is shared follow those of NICs.
// Memory that is shared is at most shareMemory large (share.MaxMemory): the firmware
// keeps so much address space for each port, and Linux does not move it later.
const (
	shareChassis = MaxSlots
	shareMemory  = 64 // MiB
)

// memoryBackend is the part of the machine's option that makes the guest's memory
// what shareArguments make.
func (c Config) memoryBackend() string {
	if c.Shares == 0 {
		return ""
	}
	return ",memory-backend=ram"
}

// shareArguments are the guest's memory, if it is not the usual, the ports for what
// is shared, and the export. Several volumes in the export have files of the same
// inode numbers, which 9p has to tell apart.
func (c Config) shareArguments() (args []string) {
	if c.Shares > 0 {
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
			"-device", c.Arch.traits().virtio("9p", "fsdev=export", "mount_tag="+ExportTag))
	}
	return args
}

// checkShares refuses what QEMU would.
func (c Config) checkShares() error {
	switch a := c.Arch.or(); {
	case c.Shares > MaxShares:
		return fmt.Errorf("%d ports for what is shared: want at most %d", c.Shares, MaxShares)
	case c.Shares > 0 && !a.traits().slots:
		return fmt.Errorf("%d ports for what is shared: nothing can be plugged into a guest of %s: want 0", c.Shares, a)
	}
	return nil
}
