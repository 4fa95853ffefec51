package guest

import (
	"errors"
	"strings"
	"testing"
	"time"

	"unnest.io/unnest/internal/testbed/image"

	"github.com/google/go-cmp/cmp"

	"unnest.io/unnest/internal/netdev/tap"
)

// The whole command line, except for the in-kernel network backend, which depends on
// the machine.
func TestArguments(t *testing.T) {
	c := Config{
		Name: "node1", Dir: "/run/unnest/lab/guests/node1",
		Image: image.Image{Kernel: "/cache/vmlinux", Compressed: "/cache/vmlinuz", Initrd: "/cache/initrd", Root: "/cache/root.ext4"},
		Accel: TCG, VCPUs: 2, Memory: 1 << 30, Slots: 2,
		NICs: []NIC{{MAC: "52:54:00:c8:00:01"}, {MAC: "52:54:00:c9:00:01"}},
	}
	want := `-name guest=node1
-nodefaults
-no-user-config
-display none
-no-reboot
-machine q35
-accel tcg,thread=multi
-cpu max,erms=off,fsrm=off
-smp 2
-m 1024M
-kernel /cache/vmlinux
-initrd /cache/initrd
-append console=ttyS0 quiet panic=-1 net.ifnames=0 mitigations=off pcie_ports=compat tsc=reliable no_timer_check random.trust_cpu=on 8250.nr_uarts=1 i8042.noaux norandmaps
-drive if=none,id=root,format=raw,snapshot=on,cache=unsafe,file=/cache/root.ext4
-device virtio-blk-pci,drive=root
-fw_cfg name=opt/unnest/seed,file=/run/unnest/lab/guests/node1/seed.tar
-chardev file,id=console,path=/run/unnest/lab/guests/node1/console.log
-serial chardev:console
-qmp unix:/run/unnest/lab/guests/node1/qmp,server=on,wait=off
-qmp unix:/run/unnest/lab/guests/node1/hostd.qmp,server=on,wait=off
-netdev tap,id=nic0,fd=3
-device virtio-net-pci,netdev=nic0,mac=52:54:00:c8:00:01,romfile=
-netdev tap,id=nic1,fd=4
-device virtio-net-pci,netdev=nic1,mac=52:54:00:c9:00:01,romfile=
-device pcie-root-port,id=rp1,chassis=1,slot=1,addr=0xf.0,multifunction=on
-device pcie-root-port,id=rp2,chassis=2,slot=2,addr=0xf.1`
	if diff := cmp.Diff(want, optionPerLine(c.arguments())); diff != "" {
		t.Errorf("command line (-want +got):\n%s", diff)
	}
}

// optionPerLine puts each option on a line of its own, with its value. It leaves out those that
// depend on this host's vhost-net.
func optionPerLine(args []string) string {
	line := strings.ReplaceAll(strings.Join(args, "\x00"), ",vhost=on", "")
	line = strings.ReplaceAll(line, "\x00-global\x00"+noQueueEvents, "")
	return strings.ReplaceAll(strings.ReplaceAll(line, "\x00-", "\n-"), "\x00", " ")
}

// A guest with polling has it in each NIC, or does not start: QEMU without vhost-net would not
// poll, and say nothing.
func TestVHostPoll(t *testing.T) {
	c := Config{Name: "g", Dir: "/d", Image: image.Image{Root: "/cache/root.ext4"}, Accel: TCG, VCPUs: 1, Memory: 1 << 30, NICs: []NIC{{}, {}}, VHostPoll: 50 * time.Microsecond}
	err, line := c.check(), strings.Join(c.arguments(), " ")
	if got := strings.Count(line, ",vhost=on,poll-us=50 "); tap.VHost() && (err != nil || got != 2) {
		t.Errorf("got %v and %d NICs that poll in %s, want 2", err, got, line)
	}
	if !tap.VHost() && (err == nil || !strings.Contains(err.Error(), "poll by vhost-net for 50µs: open /dev/vhost-net: ")) {
		t.Errorf("without vhost-net: got %v", err)
	}
	c.Emulated = true
	if err := c.check(); err == nil || !strings.Contains(err.Error(), "emulated NICs do not use vhost-net") {
		t.Errorf("emulated hardware: got %v", err)
	}
}

// Only many NICs that QEMU's main loop serves do without event descriptors: vhost-net needs them.
func TestNoQueueEvents(t *testing.T) {
	for _, tt := range []struct {
		accel Accel
		slots int
		want  bool
	}{{TCG, fewSlots, false}, {TCG, fewSlots + 1, !tap.VHost()}, {KVM, fewSlots + 1, false}} {
		line := strings.Join(Config{Accel: tt.accel, VCPUs: 2, Slots: tt.slots}.arguments(), " ")
		if got := strings.HasSuffix(line, " -global virtio-net-pci.ioeventfd=off"); got != tt.want || strings.Contains(line, "ioeventfd") != tt.want {
			t.Errorf("%s, %d slots, vhost-net %v: got %v in %s, want %v", tt.accel, tt.slots, tap.VHost(), got, line, tt.want)
		}
	}
}

// Emulated hardware has no paravirtual device, and no guest with it is restored.
func TestEmulatedArguments(t *testing.T) {
	c := Config{Name: "hvm1", Dir: "/d", Image: image.Image{Root: "/cache/root.ext4"}, Accel: TCG, VCPUs: 2, Memory: 1 << 30, Emulated: true, NICs: []NIC{{MAC: "52:54:00:c8:00:01"}}}
	line := optionPerLine(c.arguments())
	for _, want := range []string{"-device ide-hd,drive=root,bus=ide.0\n", "-device e1000,netdev=nic0,mac=52:54:00:c8:00:01,romfile="} {
		if !strings.Contains(line, want) {
			t.Errorf("no %q in\n%s", want, line)
		}
	}
	if strings.Contains(strings.ReplaceAll(line, "virtio-net-pci.vectors", ""), "virtio") || strings.Contains(line, "vhost") {
		t.Errorf("a paravirtual device in\n%s", line)
	}
	if c.Accel = KVM; !strings.Contains(optionPerLine(c.arguments()), "-cpu host,kvm=off\n") {
		t.Errorf("the guest sees KVM:\n%s", optionPerLine(c.arguments()))
	}
	if err := c.checkFreezable(); !errors.Is(err, ErrBootOnly) {
		t.Errorf("it can be restored: %v", err)
	}
	c.Arch, c.Accel = image.S390X, TCG
	c.Image.Arch = image.S390X
	if err := c.check(); err == nil || !strings.Contains(err.Error(), "emulated hardware is of amd64") {
		t.Errorf("another architecture: %v", err)
	}
}

// A guest whose credentials come from the VMM has a drive, also when it is frozen.
func TestCredentialDrive(t *testing.T) {
	c := Config{Name: "node1", Dir: "/d", Image: image.Image{Root: "/cache/root.ext4"}, Accel: TCG, VCPUs: 2, Memory: 1 << 30}
	const drive = "-device ide-cd,id=unnest-credentials"
	if strings.Contains(optionPerLine(c.arguments()), drive) {
		t.Error("every guest has a drive")
	}
	c.CredentialDrive = true
	for _, c := range []Config{c, c.frozen(&Snapshot{Dir: "/s", making: true})} {
		if line := optionPerLine(c.arguments()); !strings.Contains(line, drive) {
			t.Errorf("no drive in\n%s", line)
		}
	}
}

func TestArgumentsChoose(t *testing.T) {
	tests := []struct {
		name   string
		config Config
		want   []string
		lacks  string
	}{
		{"processors share a thread with many slots", Config{Accel: TCG, VCPUs: 2, Slots: 33}, []string{"-accel tcg,thread=single"}, "thread=multi"},
		{"one processor needs no other thread", Config{Accel: TCG, VCPUs: 1, Slots: 33}, []string{"-accel tcg,thread=multi"}, "thread=single"},
		{"TCG shows everything it emulates well", Config{Accel: TCG}, []string{"-accel tcg,thread=multi", "-cpu max,erms=off,fsrm=off"}, "-cpu host"},
		{"KVM shows the host's processor", Config{Accel: KVM}, []string{"-accel kvm", "-cpu host"}, "-accel tcg"},
		{"CPU asked for", Config{Accel: TCG, CPU: "EPYC,+svm,+npt"}, []string{"-cpu EPYC,+svm,+npt"}, "-cpu max"},
		{"frequency of the counter", Config{counterKHz: 2_600_000}, []string{"-append " + kernelCommandLine + " tsc_early_khz=2600000"}, ""},
		{"fixed addresses under TCG", Config{Accel: TCG}, []string{"-append " + kernelCommandLine + " norandmaps"}, ""},
		{"random addresses under KVM", Config{Accel: KVM}, []string{"-append " + kernelCommandLine}, "norandmaps"},
		{"fixed addresses in an emulated guest", Config{Accel: KVM, inEmulated: true}, []string{"-append " + kernelCommandLine + " norandmaps"}, ""},
		{"memory in MiB", Config{Memory: 1536 << 20}, []string{"-m 1536M"}, ""},
		{"no NIC, no slot", Config{}, nil, "-netdev"},
		{"no slot", Config{NICs: []NIC{{MAC: "02:00:00:00:00:01"}}}, []string{"-netdev tap,id=nic0,fd=3"}, "pcie-root-port"},
		{"slots alone", Config{VCPUs: 1, Slots: 1}, []string{"-device " + port(1)}, "virtio-net"},
		{"last vector for each queue", Config{VCPUs: 1, Slots: 60}, nil, "vectors="},
		{"a vector for both queues", Config{VCPUs: 1, Slots: 61}, []string{"-global virtio-net-pci.vectors=2"}, ""},
		{"last vector for both queues", Config{VCPUs: 1, Slots: 90}, []string{"-global virtio-net-pci.vectors=2"}, ""},
		{"interrupt lines", Config{VCPUs: 1, Slots: 91}, []string{"-global virtio-net-pci.vectors=0"}, ""},
		{"memory that is shared", Config{Memory: 1 << 30, VCPUs: 1, Shares: 2}, []string{
			"-machine q35,memory-backend=ram", "-m 1024M", "-object memory-backend-memfd,id=ram,share=on,size=1024M",
			"-device pcie-root-port,id=vp1,chassis=129,slot=129,addr=0xe.0,pref64-reserve=64M,multifunction=on",
			"-device pcie-root-port,id=vp2,chassis=130,slot=130,addr=0xe.1,pref64-reserve=64M",
		}, "9p"},
		{"an export", Config{Export: "/run/x"}, []string{
			"-machine q35", "-fsdev local,id=export,security_model=passthrough,multidevs=remap,path=/run/x",
			"-device virtio-9p-pci,fsdev=export,mount_tag=volumes",
		}, "memory-backend"},
		{"vectors of shares", Config{VCPUs: 1, Slots: 57, Shares: 4}, []string{"-global virtio-net-pci.vectors=2"}, ""},
		{"each processor has vectors", Config{VCPUs: 2, Slots: 112}, nil, "vectors="},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got := optionPerLine(tt.config.arguments())
			for _, w := range tt.want {
				if !strings.Contains("\n"+got+"\n", "\n"+w+"\n") {
					t.Errorf("no %q in\n%s", w, got)
				}
			}
			if tt.lacks != "" && strings.Contains(got, tt.lacks) {
				t.Errorf("%q is in\n%s", tt.lacks, got)
			}
		})
	}
}

// Every port has an address of its own, and the first of a device number announces the
// others.
func TestPorts(t *testing.T) {
	for slot, want := range map[int]string{
		1:        "pcie-root-port,id=rp1,chassis=1,slot=1,addr=0xf.0,multifunction=on",
		8:        "pcie-root-port,id=rp8,chassis=8,slot=8,addr=0xf.7",
		9:        "pcie-root-port,id=rp9,chassis=9,slot=9,addr=0x10.0,multifunction=on",
		MaxSlots: "pcie-root-port,id=rp128,chassis=128,slot=128,addr=0x1e.7",
	} {
		if got := port(slot); got != want {
			t.Errorf("slot %d: got %s, want %s", slot, got, want)
		}
	}
}

// More slots than the bus has are refused before QEMU starts.
func TestTooManySlots(t *testing.T) {
	g, err := Start(t.Context(), Config{Name: "node1", Dir: t.TempDir(), Slots: MaxSlots + 1})
	if g != nil || err == nil || !strings.Contains(err.Error(), "129 slots: want at most 128") {
		t.Errorf("got %v, %v", g, err)
	}
}

func TestTooManyShares(t *testing.T) {
	for want, c := range map[string]Config{
		"9 ports for shared volumes and memory: want at most 8": {Shares: MaxShares + 1},
		"guests of arm64 have no hot-plug: want 0":              {Shares: 1, Arch: image.ARM64, Image: image.Image{Arch: image.ARM64}, Accel: TCG},
	} {
		c.Name, c.Dir = "node1", t.TempDir()
		if g, err := Start(t.Context(), c); g != nil || err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, %v, want %s", g, err, want)
		}
	}
}

// The host daemon has a QMP socket of its own.
func TestDaemonQMP(t *testing.T) {
	c := Config{Dir: "/state/node1"}
	if got := c.DaemonQMP(); got != "/state/node1/hostd.qmp" {
		t.Errorf("got %s", got)
	}
	if c.DaemonQMP() == c.path(ownerQMP) {
		t.Error("daemon and owner share a socket")
	}
	if c.Dir = "/" + strings.Repeat("d", 96); c.checkSocket() != nil {
		t.Errorf("path of 107 bytes: %v", c.checkSocket())
	}
	if c.Dir += "d"; c.checkSocket() == nil || !strings.Contains(c.checkSocket().Error(), "at most 107 bytes: choose a shorter name, or set UNNEST_STATE") {
		t.Errorf("path of 108 bytes: %v", c.checkSocket())
	}
}
