package guest

import (
	"fmt"
	"os"
	"strconv"

	"unnest/internal/netdev/tap"
)

// Config says how to start a guest.
type Config struct {
	Name   string
	Arch   Arch   // empty: AMD64
	Dir    string // state directory, which must exist; the guest's sockets and logs go there
	Image  Image
	Accel  Accel  // KVM or TCG
	CPU    string // QEMU's CPU model; empty: the accelerator's fullest
	VCPUs  int
	Memory int64 // bytes
	Slots  int   // PCIe ports kept free for NICs to be hot-plugged, rp1 to rpN, at most MaxSlots
	// Shares is how many PCIe ports are kept free for volumes and memory that pods
	// share, vp1 to vpN, at most MaxShares. With any, other processes can map the
	// guest's memory, which virtiofs needs. It is not so without, because such memory
	// is in small pages unless the host's administrator wants otherwise
	// (/sys/kernel/mm/transparent_hugepage/shmem_enabled), and other guests' is in
	// large ones.
	Shares int
	// Export is a directory of the host that the guest can mount by 9p, with the tag
	// ExportTag. Empty: none.
	Export  string
	NICs    []NIC
	Disks   []Disk // besides the root disk; the guest cannot write to them
	Seed    Seed
	Address string // host:port where SSH will answer
}

// NIC is a NIC that the guest has from the start.
type NIC struct {
	TAP *os.File // passed to QEMU; the caller may close its own when Start has returned
	MAC string
}

// Disk is a read-only disk. The guest finds it by its serial number, of at most 20
// bytes: /sys/block/*/serial.
type Disk struct {
	Path, Serial string
}

// The files in a guest's state directory.
const (
	consoleFile = "console.log"
	qemuFile    = "qemu.log"
	seedFile    = "seed.tar"
	ownerQMP    = "qmp"       // for whoever started the guest
	daemonQMP   = "hostd.qmp" // for the host daemon alone
)

// firstTAP is the number that the first of exec.Cmd's extra files gets.
const firstTAP = 3

// arguments returns QEMU's command line. It is pure: the same config gives the
// same line.
func (c Config) arguments() []string {
	t := c.Arch.traits()
	args := append(c.machineArguments(), "-chardev", "file,id=console,path="+c.path(consoleFile))
	args = append(args, t.console...)
	for _, socket := range []string{ownerQMP, daemonQMP} {
		args = append(args, "-qmp", "unix:"+c.path(socket)+",server=on,wait=off")
	}
	for i, nic := range c.NICs {
		args = append(args, "-netdev", fmt.Sprintf("tap,id=nic%d,fd=%d%s", i, firstTAP+i, vhostArgument()))
		args = append(args, "-device", c.nicArgument(i, nic))
	}
	for slot := 1; slot <= c.Slots; slot++ {
		args = append(args, "-device", port(slot))
	}
	args = append(args, c.shareArguments()...)
	if n := c.vectors(); n < vectorsWanted {
		args = append(args, "-global", "virtio-net-pci.vectors="+strconv.Itoa(n))
	}
	return args
}

// machineArguments are those of the guest's processors, memory and disks.
func (c Config) machineArguments() []string {
	t := c.Arch.traits()
	args := []string{
		"-name", "guest=" + c.Name, "-nodefaults", "-no-user-config", "-display", "none", "-no-reboot",
		"-machine", t.machine + c.memoryBackend(), "-accel", c.accelArgument(), "-cpu", c.cpuArgument(),
		"-smp", strconv.Itoa(c.VCPUs), "-m", strconv.FormatInt(c.Memory>>20, 10) + "M",
		"-kernel", c.Image.Kernel, "-initrd", c.Image.Initrd, "-append", t.commandLine,
		"-drive", "if=none,id=root,format=raw,snapshot=on,cache=unsafe,file=" + c.Image.Root,
		"-device", t.virtio("blk", "drive=root"),
	}
	disks := c.Disks
	if t.firmware {
		args = append(args, "-fw_cfg", "name=opt/unnest/seed,file="+c.path(seedFile))
	} else {
		disks = append([]Disk{{c.path(seedFile), "unnest-seed"}}, disks...)
	}
	for i, d := range disks {
		id := "disk" + strconv.Itoa(i)
		args = append(args, "-drive", fmt.Sprintf("if=none,id=%s,format=raw,readonly=on,file=%s", id, d.Path),
			"-device", t.virtio("blk", "drive="+id, "serial="+d.Serial))
	}
	return args
}

// nicArgument is the guest's side of its NIC of the number i.
func (c Config) nicArgument(i int, nic NIC) string {
	t := c.Arch.traits()
	options := []string{"netdev=nic" + strconv.Itoa(i), "mac=" + nic.MAC}
	if t.bus == "pci" {
		options = append(options, "romfile=") // no network boot: it takes a second
	}
	return t.virtio("net", options...)
}

// The machine's bus has 31 free device numbers. Ports share one by eights, as
// its functions, from firstPort on; the devices that the guest has from the
// start are below, and the chipset's own is the last.
const (
	firstPort = 0x0f
	lastPort  = 0x1e
	functions = 8
)

// MaxSlots is the most slots that a guest can have.
const MaxSlots = (lastPort - firstPort + 1) * functions

// port returns the root port of a slot. Function 0 of a device number announces
// the others, and is there because slots are numbered from 1 without a gap.
func port(slot int) string {
	device, function := firstPort+(slot-1)/functions, (slot-1)%functions
	text := fmt.Sprintf("pcie-root-port,id=rp%d,chassis=%d,slot=%d,addr=%#x.%d", slot, slot, slot, device, function)
	if function == 0 {
		text += ",multifunction=on"
	}
	return text
}

// A processor has about 200 interrupt vectors for devices, and Linux gives a
// NIC that finds none left no driver. A virtio NIC wants three: for receiving,
// for sending, for its configuration.
const (
	vectorsPerCPU = 180
	vectorsWanted = 3
	vectorsShared = 2 // one for both queues
)

// vectors returns how many interrupt vectors each NIC gets, so that there are
// enough when every slot is in use. With 0 NICs share the few lines of the
// interrupt controller, which is slow but never runs out.
func (c Config) vectors() int {
	for _, n := range []int{vectorsWanted, vectorsShared} {
		if n*c.Slots+vectorsWanted*c.Shares <= vectorsPerCPU*c.VCPUs {
			return n
		}
	}
	return 0
}

// kernelCommandLine keeps the boot short: the console is slow when emulated,
// and what is probed for is known not to be there. The ports' own services
// (pcie_ports) would take an interrupt vector each; hot-plug does not need them,
// because it is ACPI's.
const kernelCommandLine = "console=ttyS0 quiet panic=-1 net.ifnames=0 mitigations=off pcie_ports=compat " +
	"tsc=reliable no_timer_check random.trust_cpu=on 8250.nr_uarts=1 i8042.noaux"

func (c Config) path(file string) string { return c.Dir + "/" + file }

func (c Config) accelArgument() string {
	if c.Accel == TCG {
		return "tcg,thread=multi"
	}
	return string(c.Accel)
}

func (c Config) cpuArgument() string {
	switch {
	case c.CPU != "":
		return c.CPU
	case c.Accel == TCG:
		return c.Arch.traits().cpu
	}
	return "host"
}

// vhostArgument asks for the in-kernel backend, as in the paper's evaluation,
// where this kernel has it.
func vhostArgument() string {
	if tap.VHost() {
		return ",vhost=on"
	}
	return ""
}

// DaemonQMP is the path of the QMP socket that is the host daemon's alone.
func (c Config) DaemonQMP() string { return c.path(daemonQMP) }
