package stack

import (
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"unnest.io/unnest/internal/yamldoc"
)

func TestConfigurations(t *testing.T) {
	for _, test := range []struct {
		text string
		want Configuration
	}{
		{"vm", Configuration{Name: "vm", Stack: Stack{VM}}},
		{"NoCont=vm", Configuration{Name: "NoCont", Stack: Stack{VM}}},
		{"vm/containerd:network=nat", Configuration{Name: "vm/containerd:network=nat", Stack: Stack{VM, Containerd}, Network: NAT}},
		{"BrFusion=vm/containerd:network=brfusion", Configuration{Name: "BrFusion", Stack: Stack{VM, Containerd}, Network: BrFusion}},
		{"metal.mnt.host=metal/docker:network=host,storage=volume",
			Configuration{Name: "metal.mnt.host", Stack: Stack{Metal, Docker}, Network: HostNetwork, Storage: Volume}},
		{"z=vm/vm:drive=remote,arch=s390x,vcpus=2,memory=1536MiB",
			Configuration{Name: "z", Stack: Stack{VM, VM}, Drive: Remote, Arch: S390x, VCPUs: 2, Memory: 1536 << 20}},
		{"restored-a=vm/containerd:network=nat,start=restored",
			Configuration{Name: "restored-a", Stack: Stack{VM, Containerd}, Network: NAT, Start: Restored}},
		{"ssh:host=ssh://me@[fe80::1]:2222,identity=/home/me/key=1",
			Configuration{Name: "ssh:host=ssh://me@[fe80::1]:2222,identity=/home/me/key=1", Stack: Stack{SSH},
				Host: "ssh://me@[fe80::1]:2222", Identity: "/home/me/key=1"}},
		{"polls=vm/containerd:network=hostlo,drive=pod,vhost_poll=50µs",
			Configuration{Name: "polls", Stack: Stack{VM, Containerd}, Network: Hostlo, Drive: Pod, VHostPoll: 50 * time.Microsecond}},
		{"queues=vm/containerd:network=brfusion,queues=4", Configuration{Name: "queues", Stack: Stack{VM, Containerd}, Network: BrFusion, Queues: 4}},
		{"Hostlo=vm/containerd:network=hostlo,drive=pod", Configuration{Name: "Hostlo", Stack: Stack{VM, Containerd}, Network: Hostlo, Drive: Pod}},
		{"pod=kubernetes:network=pod", Configuration{Name: "pod", Stack: Stack{Kubernetes}, Network: PodNetwork}},
		{"esxi=ssh/containerd:storage=overlay,host=ssh://192.0.2.1",
			Configuration{Name: "esxi", Stack: Stack{SSH, Containerd}, Storage: Overlay, Host: "ssh://192.0.2.1"}},
	} {
		got, err := read(test.text)
		if err != nil {
			t.Fatalf("read(%q): %v", test.text, err)
		}
		if diff := cmp.Diff(test.want, got); diff != "" {
			t.Errorf("read(%q) (-want +got):\n%s", test.text, diff)
		}
		if got.String() != test.text {
			t.Errorf("read(%q).String() = %q", test.text, got.String())
		}
	}
}

func TestNotationOrdersOptions(t *testing.T) {
	got, err := read("vm/docker:storage=overlay,network=nat")
	if err != nil {
		t.Fatal(err)
	}
	if want := "vm/docker:network=nat,storage=overlay"; got.Name != want || got.String() != want {
		t.Errorf("named %q, written %q; want %q", got.Name, got.String(), want)
	}
}

func TestConfigurationRefuses(t *testing.T) {
	for text, want := range map[string]string{
		"":                                  "stack is empty",
		"=vm":                               "it has no name",
		"vm:network=nat":                    "needs a container: use a stack such as vm/containerd",
		"vm:storage=volume":                 "needs a container",
		"metal/containerd:network=brfusion": "network brfusion needs a container in a VM",
		"vm/containerd:network=bridge":      `unknown network "bridge": want host, nat, brfusion, brfusion-cold, brfusion-trunk, localhost, overlay, docker-bridge, docker-overlay, hostlo, hostlo-plain or hostlo-network`,
		"vm/containerd:storage=aufs":        `unknown storage "aufs": want overlay or volume`,
		"vm:drive=near":                     `unknown drive "near": want local, remote or pod`,
		"vm:arch=amd64":                     `unknown architecture "amd64": want x86_64, s390x or aarch64`,
		"metal:arch=s390x":                  "architecture s390x needs a VM",
		"vm/containerd:network=docker-overlay,drive=pod":    "network docker-overlay is Docker's: use stack vm/docker",
		"vm/containerd:network=docker-bridge":               "network docker-bridge is Docker's: use stack vm/docker",
		"metal/docker:network=docker-bridge":                "network docker-bridge is made in VMs only",
		"vm/docker:network=docker-overlay":                  "add drive=pod",
		"vm/docker:network=brfusion-trunk":                  "want brfusion, or stack vm/containerd",
		"vm/podman:network=hostlo,drive=pod,release=trixie": "Podman of Debian 13 has no CNI: want host, nat, brfusion or localhost",
		"vm:release=sid":                                    `unknown release "sid": want bookworm or trixie`,
		"metal:release=trixie":                              "release trixie needs a VM of x86_64 on this host: use a stack such as vm or vm/containerd",
		"vm/vm:release=bookworm":                            "release bookworm needs a VM of x86_64 on this host",
		"vm:arch=s390x,release=trixie":                      "release trixie needs a VM of x86_64 on this host",
		"xen-pv:release=trixie":                             "release trixie: Debian 13 has no Xen: want bookworm",
		"vm/containerd:network=brfusion,queues=17":          "queues 17: want 1 to 16",
		"vm/containerd:network=brfusion,queues=-1":          "queues -1: want 1 to 16",
		"vm/containerd:network=nat,queues=4":                "queues 4: they are of a NIC that the VMM plugs",
		"vm/vm/containerd:network=brfusion,queues=4":        "queues 4: they are of a NIC that the VMM plugs",
		"vm:vhost_poll=11ms":                                "vhost_poll 11ms: want 0 to 10ms",
		"vm:vhost_poll=-1us":                                "vhost_poll -1µs: want 0 to 10ms",
		"vm/vm:vhost_poll=1us":                              "vhost_poll 1µs needs a VM on this host: use a stack such as vm or vm/containerd",
		"ssh:vhost_poll=1us,host=ssh://h":                   "vhost_poll 1µs needs a VM",
		"metal/containerd:vhost_poll=1us":                   "vhost_poll 1µs needs a VM",
		"vm:start=warm":                                     `unknown start "warm": want booted or restored`,
		"metal/containerd:start=booted":                     "start booted needs a VM: use a stack such as vm or vm/containerd",
		"ssh:start=restored,host=ssh://h":                   "start restored needs a VM",
		"vm/vm:start=restored":                              "only a VM of x86_64 that runs no VM can be restored: want booted",
		"vm:start=restored,arch=s390x":                      "only a VM of x86_64 that runs no VM can be restored: want booted",
		"vm:vcpus=-1":                                       "vcpus -1: want a whole number from 1 to 1024",
		"vm:vcpus=1025":                                     "vcpus 1025: want a whole number from 1 to 1024",
		"vm:memory=2097152GiB":                              "want 1 to 1048576GiB",
		"vm/containerd:storage=image":                       `unknown storage "image": want overlay or volume`,
		"ssh":                                               "stack ssh has no host: add host=ssh://user@address:port",
		"vm:host=ssh://h":                                   "host ssh://h needs a machine reached over SSH",
		"vm:identity=/k":                                    "identity /k needs a machine reached over SSH",
		"ssh:host=h":                                        `host "h" does not begin with ssh://`,
		"ssh/containerd:host=ssh://h,network=brfusion":      "needs a container in a VM",
		"vm/containerd:network=hostlo":                      "network hostlo is between the containers of a pod: add drive=pod",
		"vm/containerd:network=localhost,drive=remote":      "network localhost is between the containers of a pod: add drive=pod",
		"metal/containerd:network=overlay,drive=pod":        "drive pod needs a container in a VM: use a stack such as vm/containerd",
		"vm:drive=pod":                                      "drive pod needs a container in a VM",
		"vm/containerd:drive=pod":                           "drive pod needs a network between the pod's containers: want localhost, nat, overlay, docker-overlay, hostlo, hostlo-plain or hostlo-network",
		"vm/containerd:network=brfusion,drive=pod":          "drive pod needs a network between the pod's containers",
		"a b=vm":                                `character ' ' in its name`,
		"vm/kvm":                                `unknown layer "kvm"`,
		"kubernetes":                            `network "": a pod of a cluster has host, pod, service or brfusion`,
		"kubernetes:network=nat":                `network "nat": a pod of a cluster has host, pod, service or brfusion`,
		"kubernetes:network=pod,drive=remote":   "drive, vcpus and memory: leave them out",
		"kubernetes:network=pod,storage=volume": "storage volume needs a container",
		"vm/containerd:network=service":         "network service is of a cluster: use stack kubernetes",
	} {
		if c, err := read(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("read(%q) = %+v, %v; want an error with %q", text, c, err, want)
		}
	}
}

func TestDescribe(t *testing.T) {
	for text, want := range map[string]string{
		"kubernetes:network=host":    "in a pod of a Kubernetes cluster, on its machine's network",
		"kubernetes:network=service": "in a pod of a Kubernetes cluster, on the network of pods, reached by a Service",
		"NoCont":                     "in a VM, no container",
		"NAT":                        "in a containerd container in a VM, behind a bridge and NAT",
		"BrFusion":                   "in a containerd container in a VM, with a NIC of its own from the VMM",
		"metal/docker:network=host,storage=overlay":      "in a docker container on the host, on its machine's network, files in layers over its image",
		"vm/docker:storage=volume":                       "in a docker container in a VM, files in a mounted directory",
		"vm/containerd:network=brfusion,queues=4":        "in a containerd container in a VM, with a NIC of its own from the VMM, 4 queues of its NIC",
		"vm:vhost_poll=50us":                             "in a VM, no container, vhost-net polls for 50µs",
		"vm/vm:start=booted":                             "in a VM in a VM, no container, the VM booted for it alone",
		"vm/containerd:network=nat,start=restored":       "in a containerd container in a VM, behind a bridge and NAT, the VM restored from a snapshot for it alone",
		"metal.local":                                    "on the host, no container, driven locally",
		"vm.mnt.nat":                                     "in a containerd container in a VM, behind a bridge and NAT, files in a mounted directory, driven from outside",
		"vm:vcpus=1":                                     "in a VM, no container, 1 vCPU",
		"vm:arch=s390x,vcpus=2,memory=2GiB":              "in a VM, no container, on s390x, 2 vCPUs, 2GiB of memory",
		"vm/docker:network=docker-overlay,drive=pod":     "in a docker container in a VM, on Docker's overlay network, driven from another container of its pod in another VM",
		"vm:release=trixie":                              "in a VM, no container, with Debian trixie",
		"ssh:host=ssh://me@h,identity=/k":                "on a machine reached over SSH, no container, at ssh://me@h, by the key /k",
		"SameNode":                                       "in a containerd container in a VM, on its pod's loopback, driven from another container of its pod",
		"Overlay":                                        "in a containerd container in a VM, on a VXLAN overlay, driven from another container of its pod in another VM",
		"Hostlo":                                         "in a containerd container in a VM, on its pod's loopback, which the VMM backs, driven from another container of its pod in another VM",
		"vm/containerd:network=nat,drive=pod":            "in a containerd container in a VM, behind a bridge and NAT, driven from another container of its pod in another VM",
		"vm/containerd:network=hostlo-network,drive=pod": "in a containerd container in a VM, on its pod's loopback, which a tunnel between the VMs backs, driven from another container of its pod in another VM",
		"vm/docker:network=hostlo-plain,drive=pod":       "in a docker container in a VM, on its pod's loopback, which the VMM backs by sending all frames to all, driven from another container of its pod in another VM",
	} {
		c, err := read(text)
		if err != nil {
			t.Fatal(err)
		}
		if got := c.Describe(); got != want {
			t.Errorf("%s: described as %q, want %q", text, got, want)
		}
	}
}

func TestNamed(t *testing.T) {
	for name, level := range map[string]int{"NoCont": 1, "NAT": 1, "BrFusion": 1, "SameNode": 1, "Overlay": 1, "Hostlo": 1, "L0": 0, "L1": 1, "L2": 2} {
		c, ok := Named(name)
		if !ok || c.Name != name || c.Level() != level {
			t.Errorf("Named(%q) = %+v, %v; want level %d", name, c, ok, level)
		}
		if err := c.Validate(); err != nil {
			t.Errorf("Named(%q): %v", name, err)
		}
		c.Stack[0] = "overwritten"
	}
	if c, ok := Named("L1"); !ok || c.Stack[0] != VM {
		t.Errorf("a caller changed L1 to %v", c.Stack)
	}
	if _, ok := Named("vm"); ok {
		t.Error("a notation is taken for a paper's name")
	}
}

// Only a pod can be on two machines, unless it uses the loopback of one machine.
func TestSplit(t *testing.T) {
	for text, want := range map[string]bool{
		"SameNode": false, "NAT": false, "BrFusion": false, "L2": false,
		"Overlay": true, "Hostlo": true, "vm/containerd:network=hostlo-plain,drive=pod": true, "vm/containerd:network=nat,drive=pod": true,
	} {
		c, err := read(text)
		if err != nil || c.Split() != want {
			t.Errorf("%s: split %v, %v; want %v", text, c.Split(), err, want)
		}
	}
}

func TestOptions(t *testing.T) {
	c := Configuration{Name: "x", Stack: Stack{VM, Docker}, Network: NAT, Storage: Volume, Drive: Local, Start: Booted, Arch: AArch64, VCPUs: 3, Memory: 1 << 20}
	if diff := cmp.Diff(map[string]string{"network": "nat", "storage": "volume", "drive": "local", "start": "booted", "arch": "aarch64", "vcpus": "3", "memory": "1MiB"}, c.Options()); diff != "" {
		t.Error(diff)
	}
	if got := (Configuration{Stack: Stack{VM}}).Options(); len(got) != 0 {
		t.Errorf("options %v of a configuration without any", got)
	}
}

// The 16 configurations of Table 1 have the paper's names, and no two are the same.
func TestSixteenConfigurations(t *testing.T) {
	written := map[string]string{
		"local": "M:drive=local", "remote": "M:drive=remote",
		"aufs":      "M/containerd:storage=overlay,drive=local",
		"mnt":       "M/containerd:storage=volume,drive=local",
		"aufs.nat":  "M/containerd:network=nat,storage=overlay,drive=remote",
		"aufs.host": "M/containerd:network=host,storage=overlay,drive=remote",
		"mnt.nat":   "M/containerd:network=nat,storage=volume,drive=remote",
		"mnt.host":  "M/containerd:network=host,storage=volume,drive=remote",
	}
	seen := map[string]bool{}
	for _, machine := range []string{"metal", "vm"} {
		for name, want := range written {
			name, want = machine+"."+name, strings.Replace(want, "M", machine, 1)
			c, ok := Named(name)
			if !ok || c.Name != name || c.Notation() != want {
				t.Errorf("Named(%q) = %+v, %v; want %s", name, c, ok, want)
			}
			if again, err := read(c.String()); err != nil || !cmp.Equal(c, again) {
				t.Errorf("%s is read as %+v, %v", c.String(), again, err)
			}
			seen[c.Notation()] = true
		}
	}
	if len(seen) != 16 {
		t.Errorf("%d configurations can be told apart, want 16", len(seen))
	}
}

// Parsing the notation of a valid configuration gives the same configuration. Its options
// are those of its notation, and its description names its parts.
func TestEveryValidConfigurationSurvives(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	pick := func(from ...string) string { return from[r.IntN(len(from))] }
	valid := 0
	for range 40000 {
		c := Configuration{
			Name:    pick("x", "L9", "vm.local", "a.b-c_d"),
			Network: Network(pick("", "", "host", "nat", "brfusion", "brfusion-cold", "brfusion-trunk")),
			Storage: Storage(pick("", "overlay", "volume")), Drive: Drive(pick("", "local", "remote")),
			Start: Start(pick("", "", "booted", "restored")), Arch: Arch(pick("", "x86_64", "s390x", "aarch64")), VCPUs: r.IntN(3), Memory: int64(r.IntN(2)) * r.Int64N(1<<40),
			Host: pick("", "", "ssh://h", "ssh://u@h:23", "ssh://u@[::1]:22"), Identity: pick("", "", "/k"),
		}
		for range r.IntN(5) {
			c.Stack = append(c.Stack, Layer(pick("metal", "vm", "vm", "vm", "ssh", "containerd", "docker")))
		}
		if c.Validate() != nil {
			continue
		}
		valid++
		again, err := read(c.String())
		if err != nil || !cmp.Equal(c, again) {
			t.Fatalf("%+v, written %q, is read as %+v, %v", c, c.String(), again, err)
		}
		_, notation, _ := strings.Cut(c.Notation(), ":")
		for key, value := range c.Options() {
			if !strings.Contains(","+notation+",", ","+key+"="+value+",") {
				t.Fatalf("option %s=%s is not in %q", key, value, notation)
			}
		}
		if len(c.Options()) != strings.Count(notation, "=") {
			t.Fatalf("options %v of %q", c.Options(), notation)
		}
		for _, word := range []string{string(c.Arch), c.Host, c.Identity, c.Stack.Describe()} {
			if !strings.Contains(c.Describe(), word) {
				t.Fatalf("%q is not in the description %q of %s", word, c.Describe(), c.Notation())
			}
		}
	}
	if valid < 300 {
		t.Errorf("only %d of 40000 drawn are valid: the test shows little", valid)
	}
}

func TestArchitecture(t *testing.T) {
	if got := (Configuration{}).Architecture(); got != X8664 {
		t.Errorf("by default %s", got)
	}
	if got := (Configuration{Arch: S390x}).Architecture(); got != S390x {
		t.Errorf("got %s", got)
	}
}

func TestParseHost(t *testing.T) {
	for text, want := range map[string]Host{
		"ssh://192.0.2.1":          {"root", "192.0.2.1", 22},
		"ssh://me@esxi.lan:2222":   {"me", "esxi.lan", 2222},
		"ssh://root@[fe80::1]:22":  {"root", "fe80::1", 22},
		"ssh://root@[2001:db8::1]": {"root", "2001:db8::1", 22},
	} {
		if got, err := ParseHost(text); err != nil || got != want {
			t.Errorf("ParseHost(%q) = %+v, %v; want %+v", text, got, err, want)
		}
	}
	for text, want := range map[string]string{
		"":                    "does not begin with ssh://",
		"http://h":            "does not begin with ssh://",
		"ssh://":              "has no address",
		"ssh://@h":            "user or address that is empty",
		"ssh://h/":            "continues after the port",
		"ssh://h?x":           "continues after the port",
		"ssh://h:":            "no port after the colon",
		"ssh://h:0":           "port that is not between",
		"ssh://h:65536":       "port that is not between",
		"ssh://h:x":           "is not an address",
		"ssh://-oProxy@h":     "begins with a dash",
		"ssh://-h":            "begins with a dash",
		"ssh://a b":           "a space",
		"ssh://a,b":           "a comma",
		"ssh://u:secret@h:22": "has a password",
		"ssh://u@h\x00":       "cannot be printed",
	} {
		_, err := ParseHost(text)
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "secret") {
			t.Errorf("ParseHost(%q): %v; want %q", text, err, want)
		}
	}
}

func TestFormatBytes(t *testing.T) {
	for text, n := range map[string]int64{"1280": 1280, "64KiB": 64 << 10, "1536MiB": 1536 << 20, "2GiB": 2 << 30, "1025": 1025} {
		if got, err := yamldoc.Bytes(text); err != nil || got != n || FormatBytes(n) != text {
			t.Errorf("yamldoc.Bytes(%q) = %d, %v; FormatBytes(%d) = %q", text, got, err, n, FormatBytes(n))
		}
	}
}

// A container has its own address on every network of BrFusion.
func TestReached(t *testing.T) {
	for network, want := range map[Network]bool{
		"": false, HostNetwork: false, NAT: false, BrFusion: true, BrFusionCold: true, BrFusionTrunk: true,
	} {
		c := Configuration{Name: "x", Stack: Stack{Metal, Containerd}, Network: network}
		if network.Reached() != want || (c.Validate() != nil) != want {
			t.Errorf("network %q: reached %v, without a VM: %v", network, network.Reached(), c.Validate())
		}
	}
}
