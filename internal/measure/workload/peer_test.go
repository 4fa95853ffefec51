package workload

import (
	"testing"
	"time"
)

func peerParams(protocol Protocol, size int) Params {
	return Params{Protocol: protocol, Size: size, Warmup: time.Second, Duration: 2 * time.Second}
}

func TestPeerArguments(t *testing.T) {
	target, six := Endpoint{Address: "10.0.0.2", Port: 17799}, Endpoint{Address: "fd00::2", Port: 17799}
	for _, tt := range []struct{ got, want string }{
		{join(echo.Client(peerParams(UDP, 64), target)), Generator + " echo -target 10.0.0.2:17799 -protocol udp -size 64 -connections 1 -warmup 1s -duration 2s -patience 1s"},
		{join(stream.Client(peerParams(TCP, 1280), six)), Generator + " stream -target [fd00::2]:17799 -protocol tcp -size 1280 -connections 1 -warmup 1s -duration 2s"},
		{join(connect.Server(peerParams(TCP, 64), Endpoint{Port: 17799})), Generator + " serve -listen :17799"},
	} {
		if tt.got != tt.want {
			t.Errorf("got  %s\nwant %s", tt.got, tt.want)
		}
	}
}

func TestPeerValidate(t *testing.T) {
	with := func(p Params, change func(*Params)) Params { change(&p); return p }
	for _, tt := range []struct {
		workload Workload
		params   Params
		want     string
	}{
		{echo, peerParams(UDP, 64), ""},
		{echo, peerParams(TCP, 1<<20), ""},
		{stream, with(peerParams(TCP, 64), func(p *Params) { p.Connections = 4 }), ""},
		{echo, peerParams("", 64), `echo: protocol "": want udp or tcp`},
		{connect, peerParams(UDP, 64), `connect: protocol "udp": want tcp`},
		{echo, peerParams(TCP, 7), "echo: size 7: want 8 to 1048576 bytes"},
		{echo, peerParams(UDP, 65508), "echo: size 65508: want 8 to 65507 bytes"},
		{stream, with(peerParams(TCP, 64), func(p *Params) { p.Duration = 0 }), "stream: duration 0s: want 1s to 24h0m0s"},
		{stream, with(peerParams(TCP, 64), func(p *Params) { p.Warmup = -1 }), "stream: warmup -1ns: want 0s to 24h0m0s"},
		{stream, with(peerParams(TCP, 64), func(p *Params) { p.Connections = 1001 }), "stream: connections 1001: want 1 to 1000"},
		{stream, with(peerParams(TCP, 64), func(p *Params) { p.Rate = 1 }), "stream: options nodelay, threads, rate, step and clients, and key intensities: leave them out, they are of other workloads"},
	} {
		got := ""
		if err := tt.workload.Validate(tt.params); err != nil {
			got = err.Error()
		}
		if got != tt.want {
			t.Errorf("got  %s\nwant %s", got, tt.want)
		}
	}
}

// A lost datagram is counted, and not part of the latencies. Operations include the warm-up.
func TestPeerParse(t *testing.T) {
	p := peerParams(UDP, 64)
	out, err := echo.Parse(p, []byte(`{"seconds":2,"answers":30000,"latencies":{"all":{"count":20000,"mean":90.5,"p50":88,"p99":140,"p999":200,"stddev":9}},"failures":{"timed out":2,"reset":1}}`))
	if err != nil {
		t.Fatal(err)
	}
	checkOutput(t, echo, p, out)
	got := map[string]float64{}
	for _, v := range out.Values {
		got[v.Metric] = v.Value
	}
	if got["latency_mean"] != 90.5 || got["latency_p999"] != 200 || got["transaction_rate"] != 10000 || got["lost"] != 3 || out.Operations != 30000 {
		t.Errorf("got %v, %v operations", got, out.Operations)
	}
	p = peerParams(TCP, 125_000)
	out, err = stream.Parse(p, []byte(`{"seconds":2,"answers":3000,"latencies":{"all":{"count":2000,"mean":1,"p50":1,"p99":1,"p999":1,"stddev":0}}}`))
	if err != nil || out.Values[0] != (Value{"throughput", 1000}) || out.Operations != 3000 {
		t.Errorf("got %+v, %v, want 1000 Mbit/s", out, err)
	}
	for _, printed := range []string{"", "{", `{"error":"dial tcp 10.0.0.2:17799:\nno route to host"}`, `{"seconds":2,"latencies":{}}`} {
		if _, err := stream.Parse(p, []byte(printed)); err == nil {
			t.Errorf("%q: got no error", printed)
		} else {
			checkError(t, stream, err)
		}
	}
}

func TestPeerLoads(t *testing.T) {
	for _, w := range All() {
		if want := w == echo || w == connect || w == stream; IsPeer(w) != want {
			t.Errorf("Peer(%s) = %v", w.Name(), !want)
		}
	}
}
