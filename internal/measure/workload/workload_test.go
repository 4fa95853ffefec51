package workload

import (
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"unnest.io/unnest/internal/measure/result"
)

// capture reads a real output from testdata.
func capture(t testing.TB, name string) []byte {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func params(protocol Protocol, size int) Params {
	return Params{Protocol: protocol, Size: size, Duration: time.Second}
}

// checkOutput fails t unless o is a valid output of w for p.
func checkOutput(t *testing.T, w Workload, p Params, o Output) {
	t.Helper()
	metrics := w.Metrics(p)
	for _, v := range o.Values {
		i := slices.IndexFunc(metrics, func(m result.Metric) bool { return m.Name == v.Metric })
		if i < 0 {
			t.Fatalf("%s: not among the metrics that follow, or twice: %v", v.Metric, metrics)
		}
		metrics = metrics[i+1:]
		if math.IsNaN(v.Value) || math.IsInf(v.Value, 0) || v.Value < 0 {
			t.Errorf("%s = %v", v.Metric, v.Value)
		}
	}
	if !slices.ContainsFunc(o.Values, func(v Value) bool { return v.Metric == w.Primary(p) }) {
		t.Errorf("no primary metric %s in %v", w.Primary(p), o.Values)
	}
	if !(o.Operations > 0) || math.IsInf(o.Operations, 0) {
		t.Errorf("operations = %v", o.Operations)
	}
}

// checkError fails t unless err is one clear line that names the tool.
func checkError(t *testing.T, w Workload, err error) {
	t.Helper()
	if !strings.HasPrefix(err.Error(), w.Name()+": ") || strings.ContainsAny(err.Error(), "\n\r\x1b") {
		t.Errorf("error %q: want one line that starts with the tool", err)
	}
}

func checkOutputs(t *testing.T, w Workload, tests []outputTest) {
	for _, tt := range tests {
		t.Run(tt.file, func(t *testing.T) {
			got, err := w.Parse(tt.params, capture(t, tt.file))
			if err != nil {
				t.Fatal(err)
			}
			checkOutput(t, w, tt.params, got)
			if diff := cmp.Diff(tt.want, got, cmpopts.EquateApprox(1e-12, 0)); diff != "" {
				t.Errorf("output (-want +got):\n%s", diff)
			}
		})
	}
}

type outputTest struct {
	file   string
	params Params
	want   Output
}

func TestLookup(t *testing.T) {
	for _, w := range All() {
		got, err := Lookup(w.Name())
		if err != nil || got != w {
			t.Errorf("Lookup(%q) = %v, %v", w.Name(), got, err)
		}
	}
	_, err := Lookup("netperf")
	if want := `workload "netperf": unknown, want one of apache, connect, echo, iperf3, kafka, memcached, nginx, sockperf, stream`; err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}

func TestArguments(t *testing.T) {
	target := Endpoint{Address: "10.0.0.2", Port: 5201}
	everywhere := Endpoint{Port: 5201}
	warm := Params{Protocol: TCP, Size: 1280, Duration: 2 * time.Second, Warmup: time.Second, NoDelay: true}
	tests := []struct{ got, want string }{
		{join(sockperf{}.Client(params(UDP, 1280), target)), "sockperf ping-pong -i 10.0.0.2 -p 5201 -m 1280 -t 1 --full-rtt"},
		{join(sockperf{}.Client(params(TCP, 64), target)), "sockperf ping-pong -i 10.0.0.2 -p 5201 -m 64 -t 1 --full-rtt --tcp"},
		{join(sockperf{}.Server(params(UDP, 64), everywhere)), "sockperf server -p 5201"},
		{join(sockperf{}.Server(params(TCP, 64), target)), "sockperf server -p 5201 -i 10.0.0.2 --tcp"},
		{join(sockperf{}.VersionArgs()), "sockperf --version"},
		{join(iperf3{}.Client(params(UDP, 1280), target)), "iperf3 -c 10.0.0.2 -p 5201 -J --connect-timeout 5000 -t 1 -l 1280 -u -b 0"},
		{join(iperf3{}.Client(params(TCP, 1280), target)), "iperf3 -c 10.0.0.2 -p 5201 -J --connect-timeout 5000 -t 1 -l 1280"},
		{join(iperf3{}.Client(warm, target)), "iperf3 -c 10.0.0.2 -p 5201 -J --connect-timeout 5000 -t 2 -l 1280 -O 1 -N"},
		{join(iperf3{}.Client(Params{Protocol: TCP, Size: 1280, Duration: time.Second, Connections: 4}, target)), "iperf3 -c 10.0.0.2 -p 5201 -J --connect-timeout 5000 -t 1 -l 1280 -P 4"},
		{join(iperf3{}.Server(params(UDP, 64), everywhere)), "iperf3 -s -p 5201 --forceflush"},
		{join(iperf3{}.Server(params(TCP, 64), target)), "iperf3 -s -p 5201 --forceflush -B 10.0.0.2"},
		{join(iperf3{}.VersionArgs()), "iperf3 --version"},
	}
	for _, tt := range tests {
		if tt.got != tt.want {
			t.Errorf("got  %s\nwant %s", tt.got, tt.want)
		}
	}
}

func join(args []string) string { return strings.Join(args, " ") }

func TestPorts(t *testing.T) {
	tests := []struct {
		workload Workload
		protocol Protocol
		want     []Port
	}{
		{sockperf{}, UDP, []Port{{UDP, 7}}},
		{sockperf{}, TCP, []Port{{TCP, 7}}},
		{iperf3{}, UDP, []Port{{TCP, 7}, {UDP, 7}}},
		{iperf3{}, TCP, []Port{{TCP, 7}}},
	}
	for _, tt := range tests {
		if got := tt.workload.Ports(params(tt.protocol, 64), 7); !slices.Equal(got, tt.want) {
			t.Errorf("%s %s: got %v, want %v", tt.workload.Name(), tt.protocol, got, tt.want)
		}
	}
}

func TestValidate(t *testing.T) {
	valid := params(UDP, 64)
	with := func(change func(*Params)) Params { p := valid; change(&p); return p }
	tests := []struct {
		workload Workload
		params   Params
		want     string // "" for valid
	}{
		{sockperf{}, valid, ""},
		{sockperf{}, params(TCP, 14), ""},
		{sockperf{}, params("sctp", 64), `sockperf: protocol "sctp": want udp or tcp`},
		{sockperf{}, params(UDP, 13), "sockperf: size 13: want 14 to 65507 bytes"},
		{sockperf{}, params(TCP, 65508), "sockperf: size 65508: want 14 to 65507 bytes"},
		{sockperf{}, with(func(p *Params) { p.Duration = 500 * time.Millisecond }), "sockperf: duration 500ms: want whole seconds, 1s to 24h0m0s"},
		{sockperf{}, with(func(p *Params) { p.Duration = 25 * time.Hour }), "sockperf: duration 25h0m0s: want whole seconds, 1s to 24h0m0s"},
		{sockperf{}, with(func(p *Params) { p.Warmup = time.Second }), "sockperf: warmup 1s: leave it out, sockperf always ignores the first 400ms"},
		{sockperf{}, with(func(p *Params) { p.NoDelay = true }), "sockperf: nodelay: leave it out, ping-pong always sets TCP_NODELAY"},
		{iperf3{}, valid, ""},
		{iperf3{}, Params{Protocol: TCP, Size: 1 << 20, Duration: time.Second, Warmup: time.Minute, NoDelay: true}, ""},
		{iperf3{}, params(TCP, 1<<20+1), "iperf3: size 1048577: want 16 to 1048576 bytes"},
		{iperf3{}, params(UDP, 65508), "iperf3: size 65508: want 16 to 65507 bytes"},
		{iperf3{}, with(func(p *Params) { p.Duration = 1500 * time.Millisecond }), "iperf3: duration 1.5s: want whole seconds, 1s to 24h0m0s"},
		{iperf3{}, with(func(p *Params) { p.Protocol, p.Warmup = TCP, 61*time.Second }), "iperf3: warmup 1m1s: want whole seconds, 0s to 1m0s"},
		{iperf3{}, with(func(p *Params) { p.Protocol, p.Warmup = TCP, time.Millisecond }), "iperf3: warmup 1ms: want whole seconds, 0s to 1m0s"},
		{iperf3{}, with(func(p *Params) { p.Warmup = time.Second }), "iperf3: warmup 1s: leave it out with udp, iperf3 counts the losses of the warm-up"},
		{iperf3{}, with(func(p *Params) { p.NoDelay = true }), "iperf3: nodelay: leave it out with udp, it is a TCP option"},
		{iperf3{}, with(func(p *Params) { p.Protocol, p.Connections = TCP, 128 }), ""},
		{iperf3{}, with(func(p *Params) { p.Protocol, p.Connections = TCP, 129 }), "iperf3: connections 129: want 1 to 128, with tcp"},
		{iperf3{}, with(func(p *Params) { p.Connections = 4 }), "iperf3: connections 4: want 1 to 128, with tcp"},
		{iperf3{}, with(func(p *Params) { p.Rate = 100 }), "iperf3: options threads, connections and rate: leave them out, they are of applications"},
	}
	for _, tt := range tests {
		got := ""
		if err := tt.workload.Validate(tt.params); err != nil {
			got = err.Error()
		}
		if got != tt.want {
			t.Errorf("got  %s\nwant %s", got, tt.want)
		}
	}
}

func TestMetricsAreWellFormed(t *testing.T) {
	for _, w := range All() {
		for _, protocol := range []Protocol{UDP, TCP} {
			seen := map[string]bool{}
			for _, m := range w.Metrics(params(protocol, 64)) {
				if m.Name == "" || m.Unit == "" || seen[m.Name] {
					t.Errorf("%s %s: metric %+v is incomplete or there twice", w.Name(), protocol, m)
				}
				if err := m.Order.Validate(); err != nil {
					t.Error(err)
				}
				seen[m.Name] = true
			}
			if primary := w.Primary(params(protocol, 64)); !seen[primary] {
				t.Errorf("%s %s: primary %q is not a metric", w.Name(), protocol, primary)
			}
		}
	}
}

func TestWall(t *testing.T) {
	p := Params{Protocol: TCP, Size: 64, Duration: 2 * time.Second, Warmup: time.Second}
	if got, want := (iperf3{}).Wall(p), 3080*time.Millisecond; got != want {
		t.Errorf("iperf3: got %v, want %v", got, want)
	}
	if got, want := (sockperf{}).Wall(params(UDP, 64)), 3250*time.Millisecond; got != want {
		t.Errorf("sockperf: got %v, want %v", got, want)
	}
}

func TestParseVersion(t *testing.T) {
	tests := []struct {
		workload Workload
		output   string
		want     string
	}{
		{sockperf{}, string(capture(t, "sockperf-version.txt")), "3.7-no.git"},
		{iperf3{}, string(capture(t, "iperf3-version.txt")), "3.12"},
		{sockperf{}, "", `sockperf: no version in ""`},
		{iperf3{}, "bash: iperf3: command not found\n", `iperf3: no version in "bash: iperf3: command not found"`},
	}
	for _, tt := range tests {
		got, err := tt.workload.ParseVersion([]byte(tt.output))
		if err != nil {
			got = err.Error()
		}
		if got != tt.want {
			t.Errorf("got %s, want %s", got, tt.want)
		}
	}
}
