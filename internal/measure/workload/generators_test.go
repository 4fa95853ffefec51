package workload

import (
	"math"
	"strings"
	"testing"
	"time"
)

// The outputs of these tests were printed by httperf 0.9.0 and wrk 4.1.0.
const (
	httperfOutput = `httperf --hog --timeout=2 --client=0/1 --server=10.201.0.1 --port=5001 --uri=/1024 --rate=100 --num-conns=300 --num-calls=1
Maximum connect burst length: 1

Total: connections 300 requests 300 replies 300 test-duration 2.991 s

Connection rate: 100.3 conn/s (10.0 ms/conn, <=1 concurrent connections)
Connection time [ms]: min 0.3 avg 0.5 max 2.9 median 0.5 stddev 0.2
Connection time [ms]: connect 0.1
Connection length [replies/conn]: 1.000

Reply rate [replies/s]: min 0.0 avg 0.0 max 0.0 stddev 0.0 (0 samples)
Reply time [ms]: response 0.4 transfer 0.0
Reply status: 1xx=0 2xx=300 3xx=0 4xx=0 5xx=0
`
	wrkOutput = `Running 3s test @ http://10.201.0.1:5001/1024
  1 threads and 10 connections
  Thread Stats   Avg      Stdev     Max   +/- Stdev
    Latency     1.25ms    0.50ms  20.00ms   90.00%
    Req/Sec     8.00k   500.00     9.00k    70.00%
  24000 requests in 3.00s, 30.00MB read
Requests/sec:   8000.50
Transfer/sec:     10.00MB
`
)

func TestPeers(t *testing.T) {
	target := Endpoint{Address: "10.0.0.2", Port: 5001}
	open, closed := Params{Duration: 3 * time.Second, Size: 1024, Rate: 100}, Params{Duration: 3 * time.Second, Size: 1024, Connections: 10}
	httperf, wrk := Peers()[0], Peers()[1]
	for got, want := range map[string]string{
		join(httperf.Command(open, target)):  "httperf --hog --server 10.0.0.2 --port 5001 --uri /1024 --rate 100 --num-conns 300 --num-calls 1 --timeout 10",
		join(wrk.Command(closed, target)):    "wrk --threads 1 --connections 10 --duration 3s http://10.0.0.2:5001/1024",
		join(OwnCommand(open, target)[1:]):   "apache -target 10.0.0.2:5001 -threads 1 -connections 100 -size 1024 -rate 100 -warmup 0s -duration 3s",
		join(OwnCommand(closed, target)[1:]): "apache -target 10.0.0.2:5001 -threads 1 -connections 10 -size 1024 -rate 0 -warmup 0s -duration 3s -keep",
	} {
		if got != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
	}
	for _, tt := range []struct {
		peer   Peer
		p      Params
		out    string
		values []Value
		err    string
	}{
		{httperf, open, httperfOutput, []Value{{"latency_mean", 500}, {"response_rate", 300 / 2.991}, {"reached", 300 / 2.991}}, ""},
		{wrk, closed, wrkOutput, []Value{{"latency_mean", 1250}, {"response_rate", 8000.5}}, ""},
		{wrk, closed, wrkOutput + "  Socket errors: connect 0, read 3, write 0, timeout 0\n", nil, "wrk: Socket errors: connect 0, read 3"},
		{wrk, closed, "unable to connect to 10.0.0.2:5001 Connection refused\n", nil, `wrk: no rate or no latency: its output ends with "unable to connect`},
		{httperf, open, strings.Replace(httperfOutput, "avg 0.5", "avg .", 1), nil, "httperf: read latency_mean"},
		{httperf, open, "", nil, "httperf: no rate or no latency"},
	} {
		out, err := tt.peer.Parse(tt.p, []byte(tt.out))
		if (err == nil) != (tt.err == "") || err != nil && !strings.Contains(err.Error(), tt.err) {
			t.Errorf("%s: %v, want %q", tt.peer.Name, err, tt.err)
			continue
		}
		for i, v := range tt.values {
			if got := out.Values[i]; got.Metric != v.Metric || math.Abs(got.Value-v.Value) > 1e-9*v.Value {
				t.Errorf("%s: %+v, want %+v", tt.peer.Name, out.Values[i], v)
			}
		}
	}
}
