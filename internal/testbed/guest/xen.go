package guest

import "fmt"

// XenCPU is the processor that TCG shows to a Xen host. It has AMD's hardware virtualization with
// nested paging, which TCG emulates. It has no MONITOR, which TCG emulates in a way that ends Xen,
// and not the features of NestingCPU, with which the kernel of dom0 ends.
const XenCPU = "qemu64,+svm,+npt,-monitor"

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
	return []string{"-kernel", c.Image.Hypervisor, "-append", xenCommandLine, "-initrd", c.Image.Compressed + " " + line + "," + c.Image.Initrd}
}

// seedByFirmware reports whether the guest reads its seed from the firmware configuration device.
// The other guests, and dom0, read it from a disk.
func (c Config) seedByFirmware() bool { return machineOf(c.Arch).firmware && c.Image.Hypervisor == "" }
