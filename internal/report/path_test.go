package report

import (
	"strings"
	"testing"

	"unnest/internal/measure/result"
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
		for _, h := range pathOf(result.Configuration{Stack: tc.stack, Options: tc.options}) {
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
		for _, s := range (Path{Hops: layersOf(result.Configuration{Stack: tc.stack, Options: tc.options})}).stations() {
			var names []string
			for _, h := range s.Hops {
				if h.Place == inNest {
					h.Name = "[" + h.Name + "]"
				}
				names = append(names, h.Name)
			}
			stations = append(stations, string(s.Machine)+": "+strings.Join(names, ", "))
		}
		if got := strings.Join(stations, "; "); got != tc.want {
			t.Errorf("%s %v: %s, want %s", tc.stack, tc.options, got, tc.want)
		}
	}
}

// The picture says what was spent on a machine where it was measured, and nothing elsewhere.
func TestPathSpent(t *testing.T) {
	e := func(metric string, mean Number) Estimate {
		return Estimate{Case: "c", Configuration: "NAT", Metric: metric, Unit: "us/op", N: 6, Mean: mean}
	}
	estimates := []Estimate{e("latency_mean", 240), e("guest_sys", 40.14), e("guest_soft", 118.9), e("host_sys", 6.61), {Metric: "host_soft", Configuration: "NAT"}}
	for _, tc := range []struct {
		options map[string]string
		want    string
	}{
		{map[string]string{"network": "nat"}, "host: kernel 6.6 µs; VM: kernel 40 µs, interrupts 119 µs"},
		{map[string]string{"network": "nat", "drive": "pod"}, "VM 1: both VMs: kernel 40 µs, interrupts 119 µs; host: kernel 6.6 µs; VM 2: "},
	} {
		p := Path{Hops: pathOf(result.Configuration{Stack: "vm/containerd", Options: tc.options})}
		p.Spent = spent(p.Hops, estimates, "NAT")
		var stations []string
		for _, s := range p.stations() {
			stations = append(stations, string(s.Machine)+": "+s.Spent)
		}
		if got := strings.Join(stations, "; "); got != tc.want {
			t.Errorf("%v: %s, want %s", tc.options, got, tc.want)
		}
	}
}

// Wide tables are split by columns; each part names its rows.
func TestTextFitsTheWidth(t *testing.T) {
	table := Table{Title: "wide", Columns: []Column{{Name: "case", Header: true}}, Rows: [][]Cell{{{Text: "first"}}, {{Text: "second"}}}}
	for range 12 {
		table.column(Column{Name: "a number", Numeric: true}, func(int) Cell { return Cell{Text: "123456"} })
	}
	var out strings.Builder
	if err := Text(&out, Document{Title: "t", Groups: []Group{{Tables: []Table{table}}}}, TextOptions{}); err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(out.String()) {
		if len(strings.TrimRight(line, "\n")) > 80 {
			t.Errorf("longer than 80 columns: %q", line)
		}
	}
	if n := strings.Count(out.String(), "second"); n != 2 || strings.Count(out.String(), "123456") != 24 {
		t.Errorf("%d parts of\n%s", n, out.String())
	}
}

// The words of a last column stand on lines of their own below a first column that fills the line.
func TestTextBelowAFullLine(t *testing.T) {
	name, command := strings.Repeat("name ", 15)+"end", "unnest bench FILE with these domains"
	table := Table{Title: "how", Columns: []Column{{Name: "advice", Header: true}, {Name: "command"}}, Rows: [][]Cell{{{Text: name}, {Text: command}}}}
	var out strings.Builder
	if err := Text(&out, Document{Title: "t", Groups: []Group{{Tables: []Table{table}}}}, TextOptions{}); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(out.String(), "  "+name+"\n      "+command+"\n") {
		t.Errorf("name and command are not on a line each:\n%s", out.String())
	}
}

func TestAnswer(t *testing.T) {
	steady := []float64{100, 101, 99, 100, 101, 99}
	for name, tc := range map[string]struct {
		brFusion []float64
		want     string
	}{
		"faster":  {[]float64{50, 51, 49, 50, 51, 49.5}, "UDP ping-pong, 1280 B: BrFusion is faster than NoCont (0.50×)."},
		"equal":   {[]float64{100.5, 101, 99.5, 100, 101, 99}, "UDP ping-pong, 1280 B: BrFusion is equal to NoCont within 0.44 %."},
		"open":    {[]float64{130, 90, 150, 100, 160, 80}, "UDP ping-pong, 1280 B: this run decides nothing yet. At this noise, about"},
		"too few": {nil, ""},
	} {
		if got := build(exactly(steady, tc.brFusion)).Answer; !strings.HasPrefix(got, tc.want) || (tc.want == "") != (got == "") {
			t.Errorf("%s: %q, want %q", name, got, tc.want)
		}
	}
}
