package workload

import (
	"path/filepath"
	"strings"
	"testing"
)

func TestSockperfParse(t *testing.T) {
	checkOutputs(t, sockperf{}, []outputTest{
		{"sockperf-udp-64.txt", params(UDP, 64), Output{[]Value{
			{"latency_mean", 11.655}, {"latency_p50", 11.256}, {"latency_p99", 13.5}, {"latency_p999", 40.67},
			{"latency_stddev", 8.065}, {"transaction_rate", 47124 / 0.55},
			{"lost", 0}, {"duplicated", 0}, {"out_of_order", 0}}, 79409}},
		{"sockperf-tcp-16384.txt", params(TCP, 16384), Output{[]Value{
			{"latency_mean", 67.22}, {"latency_p50", 61.811}, {"latency_p99", 112.497},
			{"latency_stddev", 45.222}, {"transaction_rate", 8182 / 0.55}}, 17955}},
		{"sockperf-udp-stalled.txt", params(UDP, 64), Output{[]Value{
			{"latency_mean", 68.256}, {"latency_p50", 64.865}, {"latency_p99", 114.228},
			{"latency_stddev", 89.374}, {"transaction_rate", 6134 / 0.419},
			{"lost", 1}, {"duplicated", 0}, {"out_of_order", 0}}, 11999}},
		{"sockperf-udp-duplicated.txt", params(UDP, 64), Output{[]Value{
			{"latency_mean", 96.309}, {"latency_p50", 79.998}, {"latency_p99", 173.155}, {"latency_p999", 743.633},
			{"latency_stddev", 614.525}, {"transaction_rate", 11424 / 0.55},
			{"lost", 0}, {"duplicated", 1}, {"out_of_order", 0}}, 24741}},
	})
}

// Every captured successful run gives an output.
func TestSockperfParseCaptures(t *testing.T) {
	for _, size := range []string{"64", "1280", "16384"} {
		for _, protocol := range []Protocol{UDP, TCP} {
			name := "sockperf-" + string(protocol) + "-" + size + ".txt"
			p := params(protocol, 64)
			got, err := sockperf{}.Parse(p, capture(t, name))
			if err != nil {
				t.Errorf("%s: %v", name, err)
				continue
			}
			checkOutput(t, sockperf{}, p, got)
		}
	}
}

func TestSockperfParseErrors(t *testing.T) {
	good := string(capture(t, "sockperf-udp-64.txt"))
	file := func(name string) string { return string(capture(t, name)) }
	tests := []struct{ name, output, want string }{
		{"nothing", " \n", "sockperf: no output"},
		{"no server over udp", file("sockperf-udp-no-server.txt"), `sockperf: "sockperf: No messages were received from the server. Is the server down?"`},
		{"no server over tcp", file("sockperf-tcp-refused.txt"), "sockperf: \"sockperf: ERROR: Can`t connect socket (errno=111 Connection refused)\""},
		{"bad argument", file("sockperf-invalid-size.txt"), `sockperf: "sockperf: '-m' Invalid message size: 10 (min: 14)"`},
		{"lost at once", file("sockperf-udp-lost-early.txt"),
			`sockperf: "sockperf: No valid observations found. Try tune parameters: --time/--mps/--reply-every"` +
				` after "[Total Run] RunTime=1.001 sec; Warm up time=400 msec; SentMessages=500; ReceivedMessages=499":` +
				` a lost message ends a ping-pong; check whether the network drops messages, or increase the duration`},
		{"half round trips", file("sockperf-udp-half-round-trip.txt"),
			`sockperf: no line for the mean round trip (avg-rtt), output ends with "sockperf: ---> <MIN> observation =    5.638"`},
		{"cut", good[:strings.Index(good, "percentile 50")],
			`sockperf: no line for the percentile 50, output ends with "sockperf: --->"`},
		{"not a number", strings.Replace(good, "avg-rtt=11.655", "avg-rtt=-nan", 1),
			`sockperf: read mean round trip (avg-rtt) from "====> avg-rtt=-nan (std-dev=8.065": strconv.ParseFloat: parsing "-nan": invalid syntax`},
		{"infinite", strings.Replace(good, "avg-rtt=11.655", "avg-rtt=inf", 1),
			`sockperf: read mean round trip (avg-rtt) from "====> avg-rtt=inf (std-dev=8.065": +Inf is not a finite number of at least 0`},
		{"negative", strings.Replace(good, "std-dev=8.065", "std-dev=-8.065", 1),
			`sockperf: read mean round trip (avg-rtt) from "====> avg-rtt=11.655 (std-dev=-8.065": -8.065 is not a finite number of at least 0`},
		{"no time", strings.Replace(good, "[Valid Duration] RunTime=0.550", "[Valid Duration] RunTime=0.000", 1),
			`sockperf: no valid observations in "[Valid Duration] RunTime=0.000 sec; SentMessages=47124; ReceivedMessages=47124": increase the duration`},
		{"overflow", strings.Replace(good, "[Valid Duration] RunTime=0.550", "[Valid Duration] RunTime=1e-320", 1),
			`sockperf: read transaction_rate: +Inf is not a finite number of at least 0`},
		{"no operations", strings.Replace(good, "ReceivedMessages=79409", "ReceivedMessages=0", 1),
			`sockperf: 0 operations: want a finite number over 0`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := sockperf{}.Parse(params(UDP, 64), []byte(tt.output))
			if err == nil {
				t.Fatalf("got %v, want an error", got)
			}
			checkError(t, sockperf{}, err)
			if err.Error() != tt.want {
				t.Errorf("got  %s\nwant %s", err, tt.want)
			}
		})
	}
}

// A message in flight at the end is not lost.
func TestSockperfStalled(t *testing.T) {
	tests := []struct {
		run  sockperfRun
		want float64
	}{
		{sockperfRun{runSeconds: 1, validSeconds: 0.55, longest: 50}, 0},
		{sockperfRun{runSeconds: 1, validSeconds: 0.505, longest: 50}, 0},
		{sockperfRun{runSeconds: 1, validSeconds: 0.45, longest: 50}, 1},
		{sockperfRun{runSeconds: 1, validSeconds: 0.45, longest: 50e3}, 0},
		{sockperfRun{runSeconds: 5, validSeconds: 1, longest: 900}, 1},
	}
	for _, tt := range tests {
		if got := tt.run.stalled(); got != tt.want {
			t.Errorf("%+v: got %v, want %v", tt.run, got, tt.want)
		}
	}
}

func FuzzSockperf(f *testing.F) {
	seed(f, "sockperf-*.txt")
	f.Fuzz(func(t *testing.T, stdout []byte, udp bool) { fuzzParse(t, sockperf{}, stdout, udp, 64) })
}

// seed adds every capture that matches glob to the corpus, over both protocols.
func seed(f *testing.F, glob string) {
	f.Helper()
	files, err := filepath.Glob(filepath.Join("testdata", glob))
	if err != nil || len(files) == 0 {
		f.Fatalf("captures %s: found %d, %v", glob, len(files), err)
	}
	for _, file := range files {
		f.Add(capture(f, filepath.Base(file)), true)
		f.Add(capture(f, filepath.Base(file)), false)
	}
}

// fuzzParse checks that stdout gives either a valid output of w or one clear error
// without output.
func fuzzParse(t *testing.T, w Workload, stdout []byte, udp bool, size int) {
	p := params(TCP, size)
	if udp {
		p.Protocol = UDP
	}
	got, err := w.Parse(p, stdout)
	if err == nil {
		checkOutput(t, w, p, got)
		return
	}
	checkError(t, w, err)
	if got.Values != nil || got.Operations != 0 {
		t.Errorf("output %v with error %v", got, err)
	}
}
