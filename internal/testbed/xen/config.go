package xen

import (
	"fmt"
	"strings"

	"unnest.io/unnest/internal/testbed/guest"
)

// mac is the domain's address on the bridge, of the range that Xen has.
func (c Config) mac() string { return fmt.Sprintf("00:16:3e:75:6e:%02x", c.Number) }

// commandLine is that of the kernel, on emulated processors or others.
func (c Config) commandLine(emulated bool) string {
	console, more := "hvc0", ""
	if c.Kind == HVM { // its drivers for Xen would take the place of the emulated devices
		console, more = "ttyS0", " nopv xen_nopv"
	}
	if emulated {
		more += guest.FixedAddresses
	}
	return "console=" + console + more + " rdinit=/domain-init quiet panic=-1 net.ifnames=0 mitigations=off random.trust_cpu=on"
}

// consoleSuffix ends the name of the file, in the run's directory, in which QEMU keeps what an HVM domain prints.
const consoleSuffix = ".console"

// text is the domain's configuration for xl. @root@ and @disk@ stand for its disks.
func (c Config) text(name, kernel, dir string, emulated bool) string {
	disk, root, nic, block := "xvd", "", "", ",script="+dir+"/block"
	if c.Kind == HVM {
		// Of emulated drives, only CD-ROMs can be read-only (XSA-142). QEMU opens disks itself, without a script.
		disk, root, nic, block = "hd", ",devtype=cdrom", ",type=ioemu,model=e1000", ",backendtype=qdisk"
	}
	lines := []string{
		fmt.Sprintf("name = %q", name),
		fmt.Sprintf("type = %q", c.Kind),
		fmt.Sprintf("kernel = %q", kernel),
		fmt.Sprintf("ramdisk = %q", dir+"/"+c.Name+".initrd"),
		fmt.Sprintf("extra = %q", c.commandLine(emulated)),
		fmt.Sprintf("memory = %d", c.Memory>>20),
		fmt.Sprintf("vcpus = %d", c.VCPUs),
		fmt.Sprintf("disk = [ 'format=raw,vdev=%sa,access=ro%s%s,target=@root@', 'format=raw,vdev=%sb,access=rw%s,target=@disk@' ]", disk, root, block, disk, block),
		fmt.Sprintf("vif = [ 'mac=%s,bridge=unnest0,script=%s/vif%s' ]", c.mac(), dir, nic),
		"on_poweroff = \"destroy\"", "on_reboot = \"destroy\"", "on_crash = \"destroy\"",
	}
	if c.Weight > 0 {
		lines = append(lines, fmt.Sprintf("cpu_weight = %d", c.Weight))
	}
	if c.Kind == HVM {
		lines = append(lines, fmt.Sprintf("serial = %q", "file:"+dir+"/"+c.Name+consoleSuffix), "vga = \"none\"", "hdtype = \"ahci\"", "xen_platform_pci = 0")
	}
	return strings.Join(lines, "\n") + "\n"
}
