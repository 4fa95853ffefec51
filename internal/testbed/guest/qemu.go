package guest

import (
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/klauspost/cpuid/v2"

	"unnest.io/unnest/internal/netdev/tap"
	"unnest.io/unnest/internal/testbed/image"
	"unnest.io/unnest/internal/vmm/qemu"
)

// Config says how to start a guest.
type Config struct {
	Name   string
	Arch   image.Arch // empty: AMD64
	Dir    string     // state directory, which must exist; the guest's sockets and logs go there
	Image  image.Image
	Accel  Accel  // KVM or TCG
	CPU    string // QEMU's CPU model; empty: the accelerator's fullest
	VCPUs  int
	Memory int64 // bytes
	Slots  int   // PCIe ports for hot-plugged NICs, rp1 to rpN, at most MaxSlots
	// Shares is the number of PCIe ports for volumes and memory that pods share, vp1 to
	// vpN, at most MaxShares. If it is not 0, other processes can map the guest's memory,
	// which virtiofs needs. That memory is in small pages by default
	// (/sys/kernel/mm/transparent_hugepage/shmem_enabled), that of other guests in large.
	Shares int
	// Export is a directory of the host that the guest can mount over 9p with the tag
	// ExportTag. Empty: none.
	Export string
	// Emulated gives the guest emulated hardware in place of paravirtual devices: an AHCI disk
	// and e1000 NICs, and no clock of KVM. Its image needs their drivers: see Recipe.Emulated.
	Emulated bool
	// CredentialDrive gives the guest a drive into which the host daemon puts its credentials.
	// Its image needs drivers: see Recipe.WithDrives.
	CredentialDrive bool
	NICs            []NIC
	// VHostPoll is how long the kernel's thread of each NIC waits for the next frame before it
	// sleeps, in whole microseconds. It needs vhost-net. 0: not at all.
	VHostPoll time.Duration
	Disks     []Disk // in addition to the root disk; read-only
	// Snapshot is a frozen guest to restore in place of a boot; nil: boot.
	Snapshot *Snapshot
	// NotRestored says why a guest that was to be restored boots.
	NotRestored error
	Seed        Seed
	Address     string // host:port where SSH will answer
	// Progress is called with what a guest does that takes long to become ready. Nil: nobody is told.
	Progress func(step string) `json:"-"`

	counterKHz int64  // of the processor's time stamp counter; 0: the guest's kernel measures it
	inEmulated bool   // the guest runs in one whose processor is emulated
	patience   limits // zero: by the accelerator
}

// NIC is a NIC that the guest has when it boots.
type NIC struct {
	TAP *os.File // passed to QEMU; the caller may close it after Start
	MAC string
}

// Disk is a read-only disk. The guest finds it by its serial number, at most 20 bytes:
// /sys/block/*/serial.
type Disk struct {
	Path, Serial string
}

// The files in a guest's state directory.
const (
	consoleFile = "console.log"
	qemuFile    = "qemu.log"
	seedFile    = "seed.tar"
	ownerQMP    = "qmp"       // for the process that started the guest
	daemonQMP   = "hostd.qmp" // for the host daemon only
)

// firstTAP is the descriptor of the first of exec.Cmd's extra files.
const firstTAP = 3

// arguments returns QEMU's command line.
func (c Config) arguments() []string {
	m := machineOf(c.Arch)
	args := append(c.machineArguments(), c.consoleArguments()...)
	args = append(args, m.console...)
	for _, socket := range []string{ownerQMP, daemonQMP} {
		args = append(args, "-qmp", "unix:"+c.path(socket)+",server=on,wait=off")
	}
	for i, nic := range c.NICs {
		args = append(args, "-netdev", fmt.Sprintf("tap,id=nic%d,fd=%d%s", i, firstTAP+i, c.vhostArgument()))
		args = append(args, "-device", c.nicArgument(i, nic))
	}
	for slot := 1; slot <= c.Slots; slot++ {
		args = append(args, "-device", port(slot))
	}
	args = append(args, c.shareArguments()...)
	if c.CredentialDrive {
		args = append(args, "-device", "ide-cd,id="+qemu.CredentialDrive)
	}
	args = append(args, c.snapshotArguments()...)
	if n := c.vectors(); n < vectorsWanted {
		args = append(args, "-global", "virtio-net-pci.vectors="+strconv.Itoa(n))
	}
	if c.Accel == TCG && c.Slots > fewSlots && !tap.VHost() {
		args = append(args, "-global", noQueueEvents)
	}
	return args
}

// noQueueEvents makes a NIC tell QEMU's main loop about a filled queue without an event descriptor
// for each queue. The main loop wakes for every timer interrupt of an emulated processor. Each time it
// asks the host's kernel about four descriptors of each NIC, or about one with this option. With 100
// NICs that took a third of a processor. vhost-net needs the descriptors. Under KVM the main
// loop has no such timers. With fewSlots the difference is too small to measure.
const (
	noQueueEvents = "virtio-net-pci.ioeventfd=off"
	fewSlots      = 32
)

// machineArguments are the arguments for processors, memory and disks.
func (c Config) machineArguments() []string {
	m := machineOf(c.Arch)
	args := []string{
		"-name", "guest=" + c.Name, "-nodefaults", "-no-user-config", "-display", "none", "-no-reboot",
		"-machine", m.name + c.memoryBackend(), "-accel", c.accelArgument(), "-cpu", c.cpuArgument(),
		"-smp", strconv.Itoa(c.VCPUs), "-m", strconv.FormatInt(c.Memory>>20, 10) + "M",
	}
	args = append(args, c.entryArguments()...)
	args = append(args, "-drive", "if=none,id=root,"+c.rootDisk(), "-device", c.rootDevice())
	disks := c.Disks
	if c.seedByFirmware() {
		args = append(args, "-fw_cfg", "name=opt/unnest/seed,file="+c.path(seedFile))
	} else {
		disks = append([]Disk{{c.path(seedFile), "unnest-seed"}}, disks...)
	}
	for i, d := range disks {
		id := "disk" + strconv.Itoa(i)
		args = append(args, "-drive", fmt.Sprintf("if=none,id=%s,format=raw,readonly=on,file=%s", id, d.Path),
			"-device", m.virtio("blk", "drive="+id, "serial="+d.Serial))
	}
	return args
}

// nicArgument is the guest's device of NIC i.
func (c Config) nicArgument(i int, nic NIC) string {
	m := machineOf(c.Arch)
	options := []string{"netdev=nic" + strconv.Itoa(i), "mac=" + nic.MAC}
	if m.bus == "pci" {
		options = append(options, "romfile=") // no network boot, which takes a second
	}
	if c.Emulated {
		return strings.Join(append([]string{"e1000"}, options...), ",")
	}
	return m.virtio("net", options...)
}

// rootDevice is the guest's device of the root disk.
func (c Config) rootDevice() string {
	if c.Emulated {
		return "ide-hd,drive=root,bus=ide.0" // of the chipset's AHCI controller
	}
	return machineOf(c.Arch).virtio("blk", "drive=root")
}

// The bus has 31 free device numbers. Eight ports share one, as its functions, from
// firstPort on. The devices that the guest has at boot are below, and the chipset's own
// device is the last.
const (
	firstPort = 0x0f
	lastPort  = 0x1e
	functions = 8
)

// MaxSlots is the largest number of slots of a guest.
const MaxSlots = (lastPort - firstPort + 1) * functions

// port returns the root port of a slot. Function 0 of a device number announces the
// others. It always exists, because slots are numbered from 1 without gaps.
func port(slot int) string {
	device, function := firstPort+(slot-1)/functions, (slot-1)%functions
	text := fmt.Sprintf("pcie-root-port,id=rp%d,chassis=%d,slot=%d,addr=%#x.%d", slot, slot, slot, device, function)
	if function == 0 {
		text += ",multifunction=on"
	}
	return text
}

// A processor has about 200 interrupt vectors for devices, and a NIC without a vector gets
// no driver from Linux. A virtio NIC wants three: to receive, to send, and for its
// configuration.
const (
	vectorsPerCPU = 180
	vectorsWanted = 3
	vectorsShared = 2 // one for both queues
)

// vectors returns how many interrupt vectors each NIC gets, so that there are enough
// when every slot is in use. With 0, the NICs share the few lines of the interrupt
// controller, which is slow but always works.
func (c Config) vectors() int {
	for _, n := range []int{vectorsWanted, vectorsShared} {
		if n*c.Slots+vectorsWanted*c.Shares <= vectorsPerCPU*c.VCPUs {
			return n
		}
	}
	return 0
}

// kernelCommandLine keeps the boot short: an emulated console is slow, and the kernel
// need not probe for devices that do not exist. The services of PCIe ports (pcie_ports)
// would take an interrupt vector each, and hot-plug does not need them, because it uses
// ACPI.
const kernelCommandLine = "console=ttyS0 quiet panic=-1 net.ifnames=0 mitigations=off pcie_ports=compat " +
	"tsc=reliable no_timer_check random.trust_cpu=on 8250.nr_uarts=1 i8042.noaux"

// FixedAddresses is an argument for a kernel on an emulated processor. It gives programs and libraries
// the same addresses in each process. At other addresses QEMU translates their code again:
// /bin/true then took 67 ms in place of 18. A real processor does not translate, so its guests
// keep random addresses.
const FixedAddresses = " norandmaps"

// emulated reports whether the guest's processor is emulated, by its QEMU or below it.
func (c Config) emulated() bool { return c.Accel == TCG || c.inEmulated }

func (c Config) kernelArguments() string {
	line := machineOf(c.Arch).commandLine
	if c.emulated() {
		line += FixedAddresses
	}
	if c.counterKHz > 0 {
		line += " tsc_early_khz=" + strconv.FormatInt(c.counterKHz, 10)
	}
	return line
}

// withCounter adds the frequency of the time stamp counter if the guest has that of this
// processor. On a busy host, the guest's kernel measures a fraction of it, because it loses the
// processor while it counts the ticks of a timer. Its clock would run several times too fast.
func (c Config) withCounter() Config {
	if c.Accel == TCG && c.Arch.OrAMD64() == image.AMD64 && runtime.GOARCH == string(image.AMD64) {
		c.counterKHz = counterKHz()
	}
	return c
}

func (c Config) path(file string) string { return c.Dir + "/" + file }

// sharedSlots is the number of slots above which emulated processors share a thread.
const sharedSlots = 32

// accelArgument gives each emulated processor a thread of its own, unless the guest has very many slots. While the guest's kernel maps
// those, threads of QEMU 10.0 use entries of the software TLB that another thread has freed: QEMU aborts in iotlb_to_section, or the guest hangs.
func (c Config) accelArgument() string {
	switch {
	case c.Accel != TCG:
		return string(c.Accel)
	case c.VCPUs > 1 && c.Slots > sharedSlots:
		return "tcg,thread=single"
	}
	return "tcg,thread=multi"
}

func (c Config) cpuArgument() string {
	switch {
	case c.CPU != "":
		return c.CPU
	case c.Accel == TCG:
		return machineOf(c.Arch).cpu
	case c.Emulated: // the guest does not see KVM, so it does not ask it for the time
		return "host,kvm=off"
	}
	return "host"
}

// vhostArgument selects the in-kernel backend, as in the paper's evaluation, if this
// kernel has it.
func (c Config) vhostArgument() string {
	switch {
	case c.Emulated || !tap.VHost():
		return ""
	case c.VHostPoll > 0:
		return fmt.Sprintf(",vhost=on,poll-us=%d", c.VHostPoll.Microseconds())
	}
	return ",vhost=on"
}

// DaemonQMP is the path of the host daemon's own QMP socket.
func (c Config) DaemonQMP() string { return c.path(daemonQMP) }

// counterKHz returns the frequency of this processor's time stamp counter in kHz, 0 if it has
// none. Under TCG, it is also the counter of guests.
var counterKHz = sync.OnceValue(func() int64 {
	start := time.Now()
	read := func() (at time.Duration, ticks uint64) {
		shortest := time.Hour
		for range 100 { // an interruption between the clock and the counter would count as time
			before := time.Since(start)
			now := cpuid.CPU.RTCounter()
			if took := time.Since(start) - before; took < shortest {
				at, ticks, shortest = before+took/2, now, took
			}
		}
		return at, ticks
	}
	at, ticks := read()
	time.Sleep(20 * time.Millisecond)
	later, more := read()
	return int64(float64(more-ticks) / (later - at).Seconds() / 1000)
})
