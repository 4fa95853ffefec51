package workload

import (
	"strings"
	"testing"
	"time"
)

func TestIPerf3Parse(t *testing.T) {
	warm := params(TCP, 16384)
	warm.Warmup = time.Second
	two := params(TCP, 1280)
	two.Connections = 2
	checkOutputs(t, iperf3{}, []outputTest{
		{"iperf3-tcp-1280-parallel.json", two, Output{[]Value{
			{"throughput", 62155703.961211234 * 1e-6}, {"retransmits", 3}}, 11889920.0 / 1280}},
		{"iperf3-tcp-64.json", params(TCP, 64), Output{[]Value{
			{"throughput", 181673786.66013488 * 1e-6}, {"retransmits", 1}}, 22714560.0 / 64}},
		{"iperf3-tcp-1280.json", params(TCP, 1280), Output{[]Value{
			{"throughput", 3585707465.933952 * 1e-6}, {"retransmits", 0}}, 448265426.0 / 1280}},
		{"iperf3-tcp-1280-nodelay.json", params(TCP, 1280), Output{[]Value{
			{"throughput", 4024179112.29712296 * 1e-6}, {"retransmits", 0}}, 503111424.0 / 1280}},
		{"iperf3-tcp-16384.json", params(TCP, 16384), Output{[]Value{
			{"throughput", 17636222237.332066 * 1e-6}, {"retransmits", 1}}, 134565}},
		{"iperf3-tcp-16384-warmup.json", warm, Output{[]Value{
			{"throughput", 19671527588.81708 * 1e-6}, {"retransmits", 0}}, (2386001920.0 + 2459090944) / 16384}},
		{"iperf3-udp-64.json", params(UDP, 64), Output{[]Value{
			{"throughput", 158348588.99312648 * 1e-6}, {"packet_rate", 309295 / 1.000066},
			{"lost_percent", 1.3752311714814107}, {"jitter", 0.0040867133445923179 * 1e3}}, 309295}},
		{"iperf3-udp-1280.json", params(UDP, 1280), Output{[]Value{
			{"throughput", 2873447707.2715144 * 1e-6}, {"packet_rate", 280625 / 1.000053},
			{"lost_percent", 0.30126474349865}, {"jitter", 0.0017225506420768212 * 1e3}}, 280625}},
		{"iperf3-udp-16384.json", params(UDP, 16384), Output{[]Value{
			{"throughput", 9907919672.547457 * 1e-6}, {"packet_rate", 75607 / 1.000206},
			{"lost_percent", 3.5993879892898124}, {"jitter", 0.01048763353011402 * 1e3}}, 75607}},
	})
}

func TestIPerf3ParseErrors(t *testing.T) {
	file := func(name string) string { return string(capture(t, name)) }
	udp, tcp := file("iperf3-udp-64.json"), file("iperf3-tcp-64.json")
	received := func(report, old, new string) string {
		at := strings.Index(report, `"sum_received"`)
		return report[:at] + strings.Replace(report[at:], old, new, 1)
	}
	tests := []struct {
		name   string
		params Params
		output string
		want   string
	}{
		{"nothing", params(TCP, 64), "\n", "iperf3: no output"},
		{"no server", params(TCP, 64), file("iperf3-refused.json"), `iperf3: "unable to connect to server: Connection refused"`},
		{"busy server", params(TCP, 64), file("iperf3-busy.json"), `iperf3: "the server is busy running a test. try again later"`},
		{"no json", params(TCP, 64), "iperf3: parameter error - block size too large (maximum = 1048576 bytes)\n",
			`iperf3: decode report that ends with "iperf3: parameter error - block size too large (maximum = 1048576 bytes)": invalid character 'i' looking for beginning of value`},
		{"cut", params(TCP, 64), tcp[:len(tcp)-4],
			"iperf3: decode report that ends with \"\\\"receiver_tcp_congestion\\\":\\t\\\"bbr\\\"\": unexpected end of JSON input"},
		{"other protocol", params(UDP, 64), tcp, `iperf3: report of a "TCP" test with 64 B messages: want udp with 64 B`},
		{"other size", params(TCP, 65), tcp, `iperf3: report of a "TCP" test with 64 B messages: want tcp with 65 B`},
		{"other connections", params(TCP, 1280), file("iperf3-tcp-1280-parallel.json"), "iperf3: report of 2 connections: want 1"},
		{"nothing received", params(UDP, 64), received(udp, "19794880", "0"), "iperf3: end.sum_received.bytes missing or 0: the server received nothing"},
		{"no seconds", params(UDP, 64), received(udp, `"seconds"`, `"other"`), "iperf3: end.sum_received.seconds missing or 0"},
		{"warm-up counted", params(UDP, 1280), file("iperf3-udp-1280-warmup.json"), "iperf3: end.sum_received.lost_percent: 139.6304566261025 is over 100"},
		{"null", params(UDP, 64), received(udp, `0.0040867133445923179`, "null"), "iperf3: end.sum_received.jitter_ms missing"},
		{"negative loss", params(UDP, 64), received(udp, "1.3752311714814107", "-1"), "iperf3: read lost_percent: -1 is not a finite number of at least 0"},
		{"negative retransmits", params(TCP, 64), strings.ReplaceAll(tcp, `"retransmits":	1`, `"retransmits":	-1`), "iperf3: read retransmits: -1 is not a finite number of at least 0"},
		{"negative interval", params(TCP, 64), strings.ReplaceAll(tcp, `"omitted":	false`, `"bytes": -5`), "iperf3: intervals[0].sum.bytes: -5 is not a finite number of at least 0"},
		{"too large", params(TCP, 64), received(tcp, `"bytes":	22714560`, `"bytes": 1e999`),
			"iperf3: decode report that ends with \"}\": json: cannot unmarshal number 1e999 into Go struct field .end.sum_received.bytes of type float64"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := iperf3{}.Parse(tt.params, []byte(tt.output))
			if err == nil {
				t.Fatalf("got %v, want an error", got)
			}
			checkError(t, iperf3{}, err)
			if err.Error() != tt.want {
				t.Errorf("got  %s\nwant %s", err, tt.want)
			}
		})
	}
}

func FuzzIPerf3(f *testing.F) {
	seed(f, "iperf3-*.json")
	f.Fuzz(func(t *testing.T, stdout []byte, udp bool) {
		fuzzParse(t, iperf3{}, stdout, udp, 64)
		fuzzParse(t, iperf3{}, stdout, udp, 16384)
	})
}
