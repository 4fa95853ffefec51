package workload

import (
	"strings"
	"testing"
	"time"
)

// loads are the parameters of Table 1 of Bacou et al. 2019.
var (
	closedLoop = Params{Duration: 3 * time.Second, Warmup: 500 * time.Millisecond}
	openLoop   = Params{Duration: 5 * time.Second, Warmup: 500 * time.Millisecond, Rate: 200}
)

func TestLoadArguments(t *testing.T) {
	target := Endpoint{Address: "10.0.0.2", Port: 5201}
	small := openLoop
	small.Threads, small.Connections, small.Size = 1, 3, 100
	tests := []struct{ got, want string }{
		{join(newMemcached().Client(closedLoop, target)),
			"/usr/local/bin/unnest-load memcached -target 10.0.0.2:5201 -threads 4 -connections 200 -size 32 -rate 0 -warmup 500ms -duration 3s -wait"},
		{join(newMemcached().Client(small, target)),
			"/usr/local/bin/unnest-load memcached -target 10.0.0.2:5201 -threads 1 -connections 3 -size 100 -rate 200 -warmup 500ms -duration 5s -wait"},
		{join(newNginx().Client(openLoop, target)),
			"/usr/local/bin/unnest-load nginx -target 10.0.0.2:5201 -threads 2 -connections 100 -size 1024 -rate 200 -warmup 500ms -duration 5s -wait"},
		{join(newMemcached().Server(closedLoop, Endpoint{Port: 5201})[3:]), "memcached 5201 /usr/bin/memcached -u root -p 5201 -U 0 -c 1024"},
		{join(newMemcached().Server(closedLoop, target)[3:]), "memcached 5201 /usr/bin/memcached -u root -p 5201 -U 0 -c 1024 -l 10.0.0.2"},
	}
	for _, tt := range tests {
		if tt.got != tt.want {
			t.Errorf("got  %s\nwant %s", tt.got, tt.want)
		}
	}
	for listen, want := range map[Endpoint]string{{Port: 5201}: "listen 5201;", target: "listen 10.0.0.2:5201;"} {
		if server := join(newNginx().Server(openLoop, listen)); !strings.Contains(server, want) || !strings.HasSuffix(server, "/usr/sbin/nginx -e stderr -p /tmp/unnest-nginx-5201 -c /tmp/unnest-nginx-5201/nginx.conf") {
			t.Errorf("want %s in %s", want, server)
		}
	}
	// Cases of one application share a server, whatever their load is.
	if a, b := join(newMemcached().Server(closedLoop, target)), join(newMemcached().Server(openLoop, target)); a != b {
		t.Errorf("a closed loop has the server %s, a constant rate %s", a, b)
	}
}

func TestLoadValidate(t *testing.T) {
	with := func(change func(*Params)) Params { p := openLoop; change(&p); return p }
	tests := []struct {
		workload Workload
		params   Params
		want     string // "" for valid
	}{
		{newMemcached(), closedLoop, ""},
		{newMemcached(), openLoop, ""},
		{newNginx(), with(func(p *Params) { p.Protocol, p.Size, p.Threads, p.Connections = TCP, 1, 64, 1000 }), ""},
		{newNginx(), closedLoop, "nginx: rate is missing: give the requests per second"},
		{newNginx(), with(func(p *Params) { p.Protocol = UDP }), `nginx: protocol "udp": leave it out, it is tcp`},
		{newNginx(), with(func(p *Params) { p.NoDelay = true }), "nginx: nodelay: leave it out, it is always set"},
		{newNginx(), with(func(p *Params) { p.Duration = time.Millisecond }), "nginx: duration 1ms: want 1s to 24h0m0s"},
		{newMemcached(), with(func(p *Params) { p.Warmup = -1 }), "memcached: warmup -1ns: want 0s to 24h0m0s"},
		{newMemcached(), with(func(p *Params) { p.Size = 1 << 20 }), "memcached: size 1048576: want 1 to 524288"},
		{newMemcached(), with(func(p *Params) { p.Connections = 1001 }), "memcached: connections 1001: want 1 to 1000"},
		{newMemcached(), with(func(p *Params) { p.Threads = 65 }), "memcached: threads 65: want 1 to 64"},
		{newMemcached(), with(func(p *Params) { p.Rate = 1_000_001 }), "memcached: rate 1000001: want 1 to 1000000"},
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

// The reports in these tests were printed by unnest-load.
const (
	closedReport = `{"seconds":2,"planned":0,"answers":26000,"late_p99":0,"latencies":{` +
		`"all":{"count":22000,"mean":510,"stddev":90,"p50":500,"p99":900,"p999":1500},` +
		`"get":{"count":20000,"mean":500,"stddev":80,"p50":490,"p99":890,"p999":1400},` +
		`"set":{"count":2000,"mean":610,"stddev":95,"p50":600,"p99":950,"p999":1600}}}`
	openReport = `{"seconds":5,"planned":1000,"answers":1190,"late_p99":61,"latencies":{` +
		`"all":{"count":990,"mean":410,"stddev":90,"p50":400,"p99":800,"p999":1100},` +
		`"request":{"count":990,"mean":410,"stddev":90,"p50":400,"p99":800,"p999":1100}},` +
		`"naive":{"all":{"count":990,"mean":350,"stddev":60,"p50":340,"p99":600,"p999":900}}}`
)

// Percentiles need a number of answers: 1000 for p99, 10000 for p99.9.
func TestLoadParse(t *testing.T) {
	tests := []struct {
		name     string
		workload Workload
		params   Params
		report   string
		want     Output
	}{
		{"closed loop", newMemcached(), closedLoop, closedReport, Output{[]Value{
			{"latency_mean", 510}, {"latency_p50", 500}, {"latency_p99", 900}, {"latency_p999", 1500}, {"latency_stddev", 90}, {"response_rate", 11000},
			{"get_rate", 10000}, {"get_latency_mean", 500}, {"get_latency_p50", 490}, {"get_latency_p99", 890}, {"get_latency_p999", 1400}, {"get_latency_stddev", 80},
			{"set_rate", 1000}, {"set_latency_mean", 610}, {"set_latency_p50", 600}, {"set_latency_p99", 950}, {"set_latency_stddev", 95},
		}, 26000}},
		{"constant rate", newNginx(), openLoop, openReport, Output{[]Value{
			{"latency_mean", 410}, {"latency_p50", 400}, {"latency_stddev", 90}, {"response_rate", 198}, {"reached", 99},
			{"naive_latency_mean", 350}, {"naive_latency_p50", 340}, {"late_p99", 61},
		}, 1190}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := tt.workload.Parse(tt.params, []byte(tt.report))
			if err != nil {
				t.Fatal(err)
			}
			checkOutput(t, tt.workload, tt.params, got)
			if len(got.Values) != len(tt.want.Values) || got.Operations != tt.want.Operations {
				t.Fatalf("got  %v\nwant %v", got, tt.want)
			}
			for i, v := range got.Values {
				if v != tt.want.Values[i] {
					t.Errorf("got %v, want %v", v, tt.want.Values[i])
				}
			}
		})
	}
}

func TestLoadParseErrors(t *testing.T) {
	tests := []struct{ report, want string }{
		{"", "nginx: no output"},
		{"panic: oh\n", `nginx: decode report that ends with "panic: oh"`},
		{`{"error":"GET http://10.0.0.2:5001/file: the server\n answers 404"}`, "nginx: GET http://10.0.0.2:5001/file: the server answers 404"},
		{closedReport, "nginx: the report is of a load without a schedule"},
		{`{"seconds":5,"planned":1000}`, "nginx: no answer in the measured 5 s: increase the duration"},
	}
	for _, tt := range tests {
		got, err := newNginx().Parse(openLoop, []byte(tt.report))
		if err == nil || !strings.HasPrefix(err.Error(), tt.want) || got.Values != nil {
			t.Errorf("got %v, %v; want %s", got, err, tt.want)
		} else {
			checkError(t, newNginx(), err)
		}
	}
}

func TestLoadVersions(t *testing.T) {
	for output, w := range map[string]Workload{"memcached 1.6.18\n": newMemcached(), "nginx version: nginx/1.22.1\n": newNginx()} {
		if got, err := w.ParseVersion([]byte(output)); err != nil || !strings.Contains(output, got) || len(got) < 5 {
			t.Errorf("%s: got %q, %v", w.Name(), got, err)
		}
	}
}

func FuzzLoad(f *testing.F) {
	for _, seed := range []string{closedReport, openReport, `{"error":"x"}`, ""} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, report []byte) {
		for w, p := range map[Workload]Params{newMemcached(): closedLoop, newNginx(): openLoop} {
			got, err := w.Parse(p, report)
			if err != nil {
				continue
			}
			checkOutput(t, w, p, got)
		}
	})
}
