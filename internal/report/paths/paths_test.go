package paths

import (
	"strings"
	"testing"

	"unnest.io/unnest/internal/measure/result"
	"unnest.io/unnest/internal/report/document"
	"unnest.io/unnest/internal/report/estimate"
)

func TestPathOf(t *testing.T) {
	for _, tc := range []struct {
		name    string
		stack   string
		options map[string]string
		want    string // nested hops in brackets; empty: not known
	}{
		{"no container", "vm", nil, "client, host's bridge, NIC of the VM, kernel of the VM, server"},
		{"NAT", "vm/containerd", map[string]string{"network": "nat"},
			"client, host's bridge, NIC of the VM, kernel of the VM, [NAT], [bridge], [veth], server in its container"},
		{"BrFusion", "vm/containerd", map[string]string{"network": "brfusion"}, "client, host's bridge, the pod's own NIC, server in its container"},
		{"VLAN of a trunk", "vm/containerd", map[string]string{"network": "brfusion-trunk"}, "client, host's bridge, the pod's own NIC, server in its container"},
		{"metal", "metal/containerd", map[string]string{"network": "host", "drive": "remote"}, "client, veth, server in its container"},
		{"localhost", "vm/containerd", map[string]string{"network": "localhost", "drive": "pod"}, "client, loopback, server"},
		{"Hostlo", "vm/containerd", map[string]string{"network": "hostlo", "drive": "pod"},
			"client, loopback, reflector, loopback, server"},
		{"overlay", "vm/containerd", map[string]string{"network": "overlay", "drive": "pod"},
			"client, [veth], [bridge], [VXLAN], NIC, host's bridge, NIC, [VXLAN], [bridge], [veth], server"},
		{"VM in a VM", "vm/vm", nil, ""},
		{"another network", "vm/containerd", map[string]string{"network": "macvlan"}, ""},
		{"machine by SSH", "ssh", nil, ""},
	} {
		var names []string
		for _, h := range packet(result.Configuration{Stack: tc.stack, Options: tc.options}) {
			if h.Place == inNest {
				h.Name = "[" + h.Name + "]"
			}
			names = append(names, h.Name)
		}
		if got := strings.Join(names, ", "); got != tc.want {
			t.Errorf("%s: %s, want %s", tc.name, got, tc.want)
		}
	}
}

func TestLayersOf(t *testing.T) {
	for _, tc := range []struct {
		stack   string
		options map[string]string
		want    string // one station after another; empty: not known
	}{
		{"metal", nil, "host: benchmark, kernel"},
		{"metal/containerd", map[string]string{"storage": "overlay"}, "host: benchmark in its container, [layers of its image], kernel"},
		{"vm/containerd", map[string]string{"storage": "volume"}, "VM: benchmark in its container, [mounted directory], kernel; host: QEMU, kernel"},
		{"vm/vm", nil, "VM in the VM: benchmark, [kernel]; VM: [QEMU], kernel; host: QEMU, kernel"},
		{"vm", map[string]string{"arch": "s390x"}, ""},
		{"ssh", nil, ""},
	} {
		var stations []string
		for _, s := range (Path{Hops: layers(result.Configuration{Stack: tc.stack, Options: tc.options})}).frames() {
			var names []string
			for _, h := range s.Boxes {
				if h.Kind == string(inNest) {
					h.Name = "[" + h.Name + "]"
				}
				names = append(names, h.Name)
			}
			stations = append(stations, s.Name+": "+strings.Join(names, ", "))
		}
		if got := strings.Join(stations, "; "); got != tc.want {
			t.Errorf("%s %v: %s, want %s", tc.stack, tc.options, got, tc.want)
		}
	}
}

// The picture says what was spent on a machine where it was measured, and nothing elsewhere.
func TestPathSpent(t *testing.T) {
	e := func(metric string, mean document.Number) estimate.Estimate {
		return estimate.Estimate{Case: "c", Configuration: "NAT", Metric: metric, Unit: "us/op", N: 6, Mean: mean}
	}
	estimates := []estimate.Estimate{e("latency_mean", 240), e("guest_sys", 40.14), e("guest_soft", 118.9), e("host_sys", 6.61), {Metric: "host_soft", Configuration: "NAT"}}
	for _, tc := range []struct {
		options map[string]string
		want    string
	}{
		{map[string]string{"network": "nat"}, "host: kernel 6.6 µs; VM: kernel 40 µs, interrupts 119 µs"},
		{map[string]string{"network": "nat", "drive": "pod"}, "VM 1: both VMs: kernel 40 µs, interrupts 119 µs; host: kernel 6.6 µs; VM 2: "},
	} {
		p := Path{Hops: packet(result.Configuration{Stack: "vm/containerd", Options: tc.options})}
		p.Spent = cpuSpent(p.Hops, estimates, "NAT")
		var stations []string
		for _, s := range p.frames() {
			stations = append(stations, s.Name+": "+s.Note)
		}
		if got := strings.Join(stations, "; "); got != tc.want {
			t.Errorf("%v: %s, want %s", tc.options, got, tc.want)
		}
	}
}
