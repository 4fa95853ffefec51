package doctor

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"unnest.io/unnest/internal/netdev/share"
	"unnest.io/unnest/internal/testbed/guest"
)

// errAbsent is the error of a probe that finds nothing.
var errAbsent = errors.New("no such file or directory")

// network is a Namespace in which only the named operations fail.
type network map[string]error

func (n network) AddLink(kind string) error { return n[kind] }
func (n network) Masquerade() error         { return n["nftables"] }

// whole returns the probes of a machine that has everything.
func whole() Probes {
	return Probes{
		Root: true, Arch: "amd64", CPUs: 8, CacheDir: "/var/cache/unnest",
		Accel: func() (guest.Choice, error) { return guest.Choice{Accel: guest.KVM, Reason: "/dev/kvm opens"}, nil },
		ReadFile: files(map[string]string{
			"/proc/meminfo":                         "MemTotal:       16384000 kB\nMemFree:          512000 kB\nMemAvailable:    8388608 kB\n",
			"/sys/module/kvm_amd/parameters/nested": "1\n",
		}),
		Stat:       func(string) error { return nil },
		OpenDevice: func(string) error { return nil },
		LookPath:   func(program string) (string, error) { return "/usr/bin/" + program, nil },
		Output: func(_ context.Context, path string, _ ...string) (string, error) {
			if strings.HasPrefix(path, "/usr/bin/qemu") {
				return "QEMU emulator version 7.2.22 (Debian 1:7.2+dfsg-7+deb12u18)\n", nil
			}
			return "it is version 1.2.3-4 (Debian 5)\n", nil
		},
		Dial:        func(string) error { return nil },
		FreeDisk:    func(string) (uint64, error) { return 100 << 30, nil },
		HasImage:    func() bool { return false },
		Namespace:   func(try func(Namespace) error) error { return try(network{}) },
		LoadProgram: func() error { return nil },

		VolumeServer: func() (share.Program, error) {
			return share.Program{Path: "/usr/lib/qemu/virtiofsd", HostLocks: true}, nil
		},
	}
}

// files returns a ReadFile that knows only the given files, and how long KVM polls.
func files(known map[string]string) func(string) (string, error) {
	return func(path string) (string, error) {
		switch path {
		case haltPollFile:
			return "200000\n", nil
		case "/etc/os-release":
			return "PRETTY_NAME=\"Debian GNU/Linux 13 (trixie)\"\nID=debian\nVERSION_ID='13'\n", nil
		case "/proc/sys/kernel/osrelease":
			return "6.12.0\n", nil
		}
		text, ok := known[path]
		if !ok {
			return "", errAbsent
		}
		return text, nil
	}
}

// lacks returns a LookPath that finds all binaries except the given ones.
func lacks(programs ...string) func(string) (string, error) {
	return func(program string) (string, error) {
		if slices.Contains(programs, program) {
			return "", errAbsent
		}
		return "/usr/bin/" + program, nil
	}
}

func TestExamineWholeMachine(t *testing.T) {
	checks := Examine(t.Context(), whole())
	var names []string
	for _, c := range checks {
		names = append(names, c.Name)
		if c.State != OK || c.Found == "" || c.Remedy != "" {
			t.Errorf("check of a whole machine: %+v", c)
		}
	}
	want := []string{
		"root", "architecture", "memory", "disk", "processors", "release", "kernel",
		"qemu", "accelerator", "nested virtualization", "halt polling",
		"tun", "network namespaces", "bridge", "veth", "nftables", "ebpf", "btf", "vhost-net",
		"mmdebstrap", "mkfs.ext4", "xz", "dpkg-deb", "modprobe", "ip", "sockperf", "iperf3",
		"libvirt", "docker", "containerd", "podman", "nerdctl", "debian keys", "virtiofsd",
	}
	if diff := cmp.Diff(want, names); diff != "" {
		t.Errorf("checks differ (-want +got):\n%s", diff)
	}
	if unmet := Unmet(checks); unmet != nil {
		t.Errorf("unmet on a whole machine: %v", unmet)
	}
}

// Each row removes one capability from a complete machine. Checks that are not named
// stay ok.
func TestExamine(t *testing.T) {
	tests := []struct {
		name  string
		spoil func(*Probes)
		want  []Check
	}{
		{"ordinary user", func(p *Probes) { p.Root = false }, []Check{
			{"root", Missing, "running as an ordinary user", "run unnest with sudo", true}}},
		{"another processor", func(p *Probes) { p.Arch = "arm64" }, []Check{
			{"architecture", Missing, "arm64", "use x86-64 for guests: plan, report and compare run here", true}}},
		{"no modprobe", func(p *Probes) { p.LookPath = lacks("modprobe") }, []Check{
			{"modprobe", Missing, "no modprobe in PATH", "apt-get install kmod", true}}},
		{"no ip", func(p *Probes) { p.LookPath = lacks("ip") }, []Check{
			{"ip", Missing, "no ip in PATH", "apt-get install iproute2", true}}},
		{"another release", osReleaseOf("ID=ubuntu\nVERSION_ID=\"22.04\"\nPRETTY_NAME=\"Ubuntu 22.04.1 LTS\"\n", nil), []Check{
			{"release", Limited, "Ubuntu 22.04.1 LTS", "use Debian 12 or 13, or Ubuntu 24.04: Unnest was not tried on other releases", false}}},
		{"no os-release", osReleaseOf("", errAbsent), []Check{
			{"release", Limited, "no such file or directory", "use Debian 12 or 13, or Ubuntu 24.04: Unnest was not tried on other releases", false}}},
		{"no libvirt", func(p *Probes) { p.LookPath = lacks("libvirtd") }, []Check{
			{"libvirt", Missing, "no libvirtd in PATH", "apt-get install libvirt-daemon-system, for guests that libvirt runs", false}}},
		{"libvirt without its driver for QEMU", func(p *Probes) {
			p.Stat = func(path string) error {
				if strings.Contains(path, "libvirt") {
					return errAbsent
				}
				return nil
			}
		}, []Check{
			{"libvirt", Limited, "1.2.3, /usr/bin/libvirtd, no libvirt_driver_qemu.so", "apt-get install libvirt-daemon-driver-qemu", false}}},
		{"libvirt of Fedora", func(p *Probes) {
			p.Stat = absent("/usr/lib/x86_64-linux-gnu/libvirt/connection-driver/libvirt_driver_qemu.so")
		}, nil},
		{"no virtiofsd", func(p *Probes) {
			p.VolumeServer = func() (share.Program, error) {
				return share.Program{}, fmt.Errorf("%w: %w", share.ErrNoServer, errAbsent)
			}
		}, []Check{
			{"virtiofsd", Missing, "not installed", "apt-get install virtiofsd (on Debian 12: qemu-system-common), for volumes", false}}},
		{"virtiofsd without locks of the host", func(p *Probes) {
			p.VolumeServer = func() (share.Program, error) { return share.Program{Path: "/usr/libexec/virtiofsd"}, nil }
		}, []Check{
			{"virtiofsd", Limited, "/usr/libexec/virtiofsd, locks of files hold within a guest only, and guests of Debian 12 have no shared mappings (MAP_SHARED)", "for both, use a host with Debian 12", false}}},
		{"one processor", func(p *Probes) { p.CPUs = 1 }, []Check{
			{"processors", Limited, "1", "use a machine with 2 or more: guest and client share one, which changes every figure", false}}},
		{"little memory", memoryOf("MemAvailable: 1572864 kB\n"), []Check{
			{"memory", Limited, "1.5 GiB available, want 2.0 GiB", "stop other programs, or use a larger machine", true}}},
		{"hardly any memory", memoryOf("MemAvailable: 1048575 kB\n"), []Check{
			{"memory", Missing, "1.0 GiB available, want 2.0 GiB", "stop other programs, or use a larger machine", true}}},
		{"container with little memory", groupOf("/sys/fs/cgroup/memory.max", "1610612736\n"), []Check{
			{"memory", Limited, "1.5 GiB for this container, want 2.0 GiB", "give it more memory", true}}},
		{"container of version 1 with hardly any", groupOf("/sys/fs/cgroup/memory/memory.limit_in_bytes", "536870912\n"), []Check{
			{"memory", Missing, "0.5 GiB for this container, want 2.0 GiB", "give it more memory", true}}},
		{"container without a limit", groupOf("/sys/fs/cgroup/memory.max", "max\n"), nil},
		{"version 1 without a limit", groupOf("/sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n"), nil},
		{"old kernel", memoryOf("MemFree: 1048575 kB\n"), []Check{
			{"memory", Missing, "no MemAvailable in /proc/meminfo", "use Linux 3.14 or newer", true}}},
		{"no proc", func(p *Probes) { p.ReadFile = files(map[string]string{"/sys/module/kvm_amd/parameters/nested": "1"}) }, []Check{
			{"memory", Missing, "no such file or directory", "mount -t proc proc /proc", true}}},
		{"little room", func(p *Probes) { p.FreeDisk = func(string) (uint64, error) { return 3 << 30, nil } }, []Check{
			{"disk", Limited, "3.0 GiB free for /var/cache/unnest, want 4.0 GiB", "free some space, or set UNNEST_CACHE to a directory elsewhere", true}}},
		{"no cache directory", func(p *Probes) { p.FreeDisk = func(string) (uint64, error) { return 0, errAbsent } }, []Check{
			{"disk", Missing, "no such file or directory", "set UNNEST_CACHE to a writable directory", true}}},
		{"tcg", func(p *Probes) {
			p.Accel = tcg
			device("/dev/kvm")(p)
		}, []Check{
			{"accelerator", Limited, "tcg: no hardware", "as root: modprobe kvm_intel (or kvm_amd); if that fails, enable virtualization in the firmware; on a virtual machine, enable nested virtualization on its host", false},
			{"nested virtualization", Limited, "tcg emulates svm: an L2 guest works, but slowly", "see accelerator", false}}},
		{"tcg of QEMU 10", tcgOf("10.0.13"), []Check{
			emulated, {"nested virtualization", Limited, "tcg emulates svm: an L2 guest works, but slowly", "see accelerator", false},
			{"xen domains", Limited, "in a Xen host emulated by this QEMU, PVH and HVM domains power off at boot; PV domains run", forXen, false}}},
		{"tcg of QEMU 8", tcgOf("8.2.2"), []Check{
			emulated, {"nested virtualization", Limited, "tcg emulates svm: an L2 guest works, but slowly; without nested paging, in which this QEMU fails", "see accelerator", false},
			{"xen domains", Limited, "not tried in a Xen host emulated by this QEMU", forXen, false}}},
		{"tcg of another QEMU", tcgOf("9.2.0"), []Check{
			{"qemu", Limited, "9.2.0, /usr/bin/qemu-system-x86_64", "use QEMU 7.2, 8.2, 10.0: Unnest was not tried with others", true},
			emulated, {"nested virtualization", Limited, "tcg emulates svm: an L2 guest works, but slowly", "see accelerator", false},
			{"xen domains", Limited, "not tried in a Xen host emulated by this QEMU", forXen, false}}},
		{"tcg in spite of /dev/kvm", func(p *Probes) { p.Accel = tcg }, []Check{
			{"accelerator", Limited, "tcg: no hardware", "enable virtualization in the firmware; on a virtual machine, enable nested virtualization on its host", false},
			{"nested virtualization", Limited, "tcg emulates svm: an L2 guest works, but slowly", "see accelerator", false}}},
		{"no accelerator", func(p *Probes) { p.Accel = func() (guest.Choice, error) { return guest.Choice{}, guest.ErrAccel } }, []Check{
			{"accelerator", Missing, "accelerator not available", "use --accel tcg", false}}},
		{"nested off", parameters(map[string]string{"kvm_intel": "N\n"}), []Check{
			{"nested virtualization", Missing, "kvm_intel has nested=N", "modprobe -r kvm_intel && modprobe kvm_intel nested=1", false}}},
		{"nested on, Intel", parameters(map[string]string{"kvm_intel": "Y\n"}), nil},
		{"nested unknown", parameters(nil), []Check{
			{"nested virtualization", Missing, "neither kvm_intel nor kvm_amd has a parameter nested", "use --accel tcg, which emulates svm", false}}},
		{"KVM without halt polling", func(p *Probes) {
			read := p.ReadFile
			p.ReadFile = func(path string) (string, error) {
				if path == haltPollFile {
					return "", errAbsent
				}
				return read(path)
			}
		}, []Check{{"halt polling", Missing, "no such file or directory", "use Linux 4.0 or newer", false}}},
		{"no tun", device("/dev/net/tun"), []Check{
			{"tun", Missing, "no such file or directory", "modprobe tun; start a container with --device /dev/net/tun --cap-add NET_ADMIN", true}}},
		{"no vhost-net", device("/dev/vhost-net"), []Check{
			{"vhost-net", Missing, "no such file or directory", "modprobe vhost_net; without it, QEMU itself moves the packets", false}}},
		{"no namespaces", func(p *Probes) {
			p.Namespace = func(func(Namespace) error) error { return errors.New("not permitted") }
		}, []Check{
			{"network namespaces", Missing, "not permitted", "run as root on a kernel with CONFIG_NET_NS", true},
			{"bridge", Missing, "not tried: no network namespace", "see network namespaces", true},
			{"veth", Missing, "not tried: no network namespace", "see network namespaces", true},
			{"nftables", Missing, "not tried: no network namespace", "see network namespaces", true}}},
		{"no bridge", without("bridge"), []Check{{"bridge", Missing, "not supported", "modprobe bridge", true}}},
		{"no veth", without("veth"), []Check{{"veth", Missing, "not supported", "modprobe veth", true}}},
		{"no nftables", without("nftables"), []Check{{"nftables", Missing, "not supported", "modprobe nf_tables nft_masq nft_chain_nat", true}}},
		{"no ebpf", func(p *Probes) { p.LoadProgram = func() error { return errors.New("not permitted") } }, []Check{
			{"ebpf", Missing, "not permitted", "run as root on a kernel with CONFIG_BPF_SYSCALL and CONFIG_NET_CLS_BPF", true}}},
		{"no keys of Debian on Ubuntu", func(p *Probes) {
			osReleaseOf("ID=ubuntu\nVERSION_ID=\"24.04\"\nPRETTY_NAME=\"Ubuntu 24.04.1 LTS\"\n", nil)(p)
			p.Stat, p.LookPath = absent(debianKeyring), lacks("gpg")
		}, []Check{
			{"debian keys", Missing, "no debian-archive-keyring.gpg", "apt-get install debian-archive-keyring", true},
			{"gpg", Missing, "no gpg in PATH", "apt-get install gpg", true}}},
		{"no btf", func(p *Probes) { p.Stat = absent("/sys/kernel/btf/vmlinux") }, []Check{
			{"btf", Missing, "no such file or directory", "use a kernel with CONFIG_DEBUG_INFO_BTF", true}}},
		{"no qemu", func(p *Probes) { p.LookPath = lacks("qemu-system-x86_64") }, []Check{
			{"qemu", Missing, "no qemu-system-x86_64 in PATH", "apt-get install qemu-system-x86", true}}},
		{"no mkfs", func(p *Probes) { p.LookPath = lacks("mkfs.ext4") }, []Check{
			{"mkfs.ext4", Missing, "no mkfs.ext4 in PATH", "apt-get install e2fsprogs", true}}},
		{"no docker", func(p *Probes) { p.LookPath = lacks("docker") }, []Check{
			{"docker", Missing, "no docker in PATH", "apt-get install docker.io", false}}},
		{"containerd asleep", func(p *Probes) {
			p.Dial = func(socket string) error {
				if strings.Contains(socket, "docker") {
					return nil
				}
				return errAbsent
			}
		}, []Check{
			{"containerd", Limited, "1.2.3, /usr/bin/containerd, not running: no such file or directory", "systemctl start containerd (without systemd: containerd &)", false},
			{"nerdctl", Limited, "1.2.3, /usr/bin/nerdctl, not running: no such file or directory", "systemctl start containerd (without systemd: containerd &)", false}}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			p := whole()
			tt.spoil(&p)
			got := slices.DeleteFunc(Examine(t.Context(), p), func(c Check) bool { return c.State == OK })
			if diff := cmp.Diff(tt.want, got, cmp.Transformer("empty", func(c []Check) []Check { return append([]Check{}, c...) })); diff != "" {
				t.Errorf("checks differ (-want +got):\n%s", diff)
			}
		})
	}
}

func tcg() (guest.Choice, error) { return guest.Choice{Accel: guest.TCG, Reason: "no hardware"}, nil }

// What the doctor says where TCG emulates.
var emulated = Check{"accelerator", Limited, "tcg: no hardware", "enable virtualization in the firmware; on a virtual machine, enable nested virtualization on its host", false}

const forXen = "for these, use Debian 12's QEMU 7.2, or a Xen host of yours over SSH"

// tcgOf has a version of QEMU emulate.
func tcgOf(version string) func(*Probes) {
	return func(p *Probes) {
		p.Accel = tcg
		p.Output = func(context.Context, string, ...string) (string, error) {
			return "QEMU emulator version " + version, nil
		}
	}
}

// groupOf adds the limit of a control group.
func groupOf(file, limit string) func(*Probes) {
	return func(p *Probes) {
		p.ReadFile = files(map[string]string{"/proc/meminfo": "MemAvailable: 8388608 kB\n", "/sys/module/kvm_amd/parameters/nested": "1", file: limit})
	}
}

func memoryOf(meminfo string) func(*Probes) {
	return func(p *Probes) {
		p.ReadFile = files(map[string]string{"/proc/meminfo": meminfo, "/sys/module/kvm_amd/parameters/nested": "1"})
	}
}

func osReleaseOf(text string, err error) func(*Probes) {
	return func(p *Probes) {
		read := p.ReadFile
		p.ReadFile = func(path string) (string, error) {
			if path == "/etc/os-release" {
				return text, err
			}
			return read(path)
		}
	}
}

func parameters(nested map[string]string) func(*Probes) {
	known := map[string]string{"/proc/meminfo": "MemAvailable: 8388608 kB\n"}
	for module, value := range nested {
		known["/sys/module/"+module+"/parameters/nested"] = value
	}
	return func(p *Probes) { p.ReadFile = files(known) }
}

func device(missing string) func(*Probes) {
	return func(p *Probes) {
		p.OpenDevice = func(path string) error {
			if path == missing {
				return errAbsent
			}
			return nil
		}
	}
}

// absent returns a Stat that finds everything except a path.
func absent(missing string) func(string) error {
	return func(path string) error {
		if path == missing {
			return errAbsent
		}
		return nil
	}
}

func without(what string) func(*Probes) {
	return func(p *Probes) {
		p.Namespace = func(try func(Namespace) error) error {
			return try(network{what: errors.New("not supported")})
		}
	}
}

// A tool that does not run is missing, and the error names it.
func TestExamineBrokenProgram(t *testing.T) {
	p := whole()
	p.Output = func(_ context.Context, path string, args ...string) (string, error) {
		return "", errors.New("exec format error")
	}
	checks := Examine(t.Context(), p)
	want := []string{"qemu", "mmdebstrap", "mkfs.ext4", "xz", "dpkg-deb", "modprobe", "ip", "sockperf", "iperf3"}
	if diff := cmp.Diff(want, Unmet(checks)); diff != "" {
		t.Errorf("unmet differ (-want +got):\n%s", diff)
	}
	i := slices.IndexFunc(checks, func(c Check) bool { return c.Name == "mkfs.ext4" })
	if want := "run /usr/bin/mkfs.ext4 -V: exec format error"; checks[i].Found != want {
		t.Errorf("found %q, want %q", checks[i].Found, want)
	}
}

func TestFirstVersion(t *testing.T) {
	tests := []struct{ out, want string }{
		{"QEMU emulator version 7.2.22 (Debian 1:7.2+dfsg-7+deb12u18)\nCopyright (c) 2003-2022", "7.2.22"},
		{"mke2fs 1.47.0 (5-Feb-2023)\n\tUsing EXT2FS Library version 1.47.0", "1.47.0"},
		{"sockperf, version 3.7-no.git", "3.7"},
		{"iperf 3.12 (cJSON 1.7.15)", "3.12"},
		{"Debian 'dpkg-deb' package archive backend version 1.21.23 (amd64).", "1.21.23"},
		{"containerd github.com/containerd/containerd 1.6.20~ds1 1.6.20~ds1-1+deb12u2", "1.6.20"},
		{"", "version unknown"},
	}
	for _, tt := range tests {
		if got := firstVersion(tt.out); got != tt.want {
			t.Errorf("firstVersion(%q) = %q, want %q", tt.out, got, tt.want)
		}
	}
}
