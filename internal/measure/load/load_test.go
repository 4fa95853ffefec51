package load

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"unnest.io/unnest/internal/measure/workload"
)

// store is a server that speaks as much of memcached's protocol as the load uses.
type store struct {
	mu          sync.Mutex
	values      map[string]string
	damage      func(value string) string // of answers; nil: none
	connections atomic.Int64
	gets, sets  atomic.Int64
}

// serve starts the server and returns its address.
func (s *store) serve(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	s.values = map[string]string{}
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			s.connections.Add(1)
			go s.talk(c)
		}
	}()
	return l.Addr().String()
}

func (s *store) talk(c net.Conn) {
	defer c.Close()
	in := bufio.NewReader(c)
	for {
		line, err := in.ReadString('\n')
		if err != nil {
			return
		}
		var key string
		var flags, expiry, size int
		if n, _ := fmt.Sscanf(line, "set %s %d %d %d", &key, &flags, &expiry, &size); n == 4 {
			value := make([]byte, size+2)
			for got := 0; got < len(value); {
				n, err := in.Read(value[got:])
				if err != nil {
					return
				}
				got += n
			}
			s.sets.Add(1)
			s.put(key, string(value[:size]))
			_, _ = fmt.Fprint(c, "STORED\r\n")
			continue
		}
		if n, _ := fmt.Sscanf(line, "gets %s", &key); n == 1 {
			s.gets.Add(1)
			if value, ok := s.get(key); ok {
				_, _ = fmt.Fprintf(c, "VALUE %s 0 %d 1\r\n%s\r\n", key, len(value), value)
			}
			_, _ = fmt.Fprint(c, "END\r\n")
			continue
		}
		_, _ = fmt.Fprint(c, "ERROR\r\n")
	}
}

func (s *store) put(key, value string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.values[key] = value
}

func (s *store) get(key string) (string, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	value, ok := s.values[key]
	if s.damage != nil {
		value = s.damage(value)
	}
	return value, ok
}

// generate runs the program as the workload calls it, and parses its report as the workload
// does.
func generate(t *testing.T, tool string, p workload.Params, address string) (workload.Output, workload.LoadReport, error) {
	t.Helper()
	w, err := workload.Lookup(tool)
	if err != nil {
		t.Fatal(err)
	}
	tcp, err := net.ResolveTCPAddr("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	var stdout, stderr bytes.Buffer
	code := Main(w.Client(p, workload.Endpoint{Address: tcp.IP.String(), Port: tcp.Port})[1:], strings.NewReader("\n"), &stdout, &stderr)
	out, err := w.Parse(p, stdout.Bytes())
	if prepared := strings.Contains(stderr.String(), workload.Prepared+"\n"); err == nil && !prepared {
		t.Errorf("it does not say that it is prepared: %q", stderr.String())
	}
	if (code == 0) != (err == nil) {
		t.Errorf("exit code %d, %v: %s%s", code, err, stdout.String(), stderr.String())
	}
	var report workload.LoadReport
	if err := json.Unmarshal(stdout.Bytes(), &report); err != nil {
		t.Error(err)
	}
	return out, report, err
}

// metric returns one value of an output, -1 if there is none.
func metric(o workload.Output, name string) float64 {
	i := slices.IndexFunc(o.Values, func(v workload.Value) bool { return v.Metric == name })
	if i < 0 {
		return -1
	}
	return o.Values[i].Value
}

// A closed loop stores all keys first, uses every connection, and then sends one SET for ten
// GETs.
func TestMemcachedClosedLoop(t *testing.T) {
	var s store
	out, report, err := generate(t, "memcached", workload.Params{Duration: time.Second, Warmup: 100 * time.Millisecond, Connections: 30}, s.serve(t))
	if err != nil {
		t.Fatal(err)
	}
	if len(s.values) != memcachedKeys || s.connections.Load() != 30 {
		t.Errorf("%d keys over %d connections, want %d over 30", len(s.values), s.connections.Load(), memcachedKeys)
	}
	if all := float64(s.gets.Load() + s.sets.Load() - memcachedKeys); out.Operations != all {
		t.Errorf("%v operations, but the server answered %v after it was prepared", out.Operations, all)
	}
	get, set := metric(out, "get_rate"), metric(out, "set_rate")
	if set <= 0 || get/set < 9 || get/set > 11 {
		t.Errorf("%v GETs and %v SETs per second, want ten GETs for a SET", get, set)
	}
	if rate := metric(out, "response_rate"); rate < 0.999*(get+set) || rate > 1.001*(get+set) {
		t.Errorf("%v responses per second, want %v", rate, get+set)
	}
	if report.Planned != 0 || metric(out, "reached") != -1 || metric(out, "get_latency_mean") <= 0 {
		t.Errorf("got %v", out.Values)
	}
}

// At a constant rate the load sends as many requests as the schedule has, whatever the server
// could do.
func TestConstantRate(t *testing.T) {
	var s store
	rate := workload.Params{Duration: 2 * time.Second, Warmup: 500 * time.Millisecond, Connections: 10, Rate: 200}
	out, report, err := generate(t, "memcached", rate, s.serve(t))
	if err != nil {
		t.Fatal(err)
	}
	if report.Planned != 400 {
		t.Errorf("planned %v requests, want 200/s for 2 s", report.Planned)
	}
	if sent := s.gets.Load() + s.sets.Load() - memcachedKeys; sent > 500 {
		t.Errorf("sent %d requests, want at most 200/s for 2.5 s", sent)
	}
	reached, got, naive := metric(out, "reached"), metric(out, "latency_mean"), metric(out, "naive_latency_mean")
	if reached <= 0 || reached > 100 || naive <= 0 || got < naive || metric(out, "late_p99") < 0 {
		t.Errorf("reached %v %%, latency %v and naive %v µs", reached, got, naive)
	}
	if metric(out, "response_rate") != 2*reached {
		t.Errorf("%v responses/s are not %v %% of 200", metric(out, "response_rate"), reached)
	}
}

// file is a web server that answers with a status and a body.
func file(t *testing.T, status int, body []byte, pause time.Duration) string {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		time.Sleep(pause)
		if r.URL.Path != workload.NginxFile {
			status = http.StatusNotFound
		}
		w.WriteHeader(status)
		_, _ = w.Write(body)
	}))
	t.Cleanup(server.Close)
	return server.Listener.Addr().String()
}

var fileLoad = workload.Params{Duration: time.Second, Connections: 4, Rate: 100}

func TestHTTP(t *testing.T) {
	out, report, err := generate(t, "nginx", fileLoad, file(t, http.StatusOK, numbers(1024), 0))
	if err != nil {
		t.Fatal(err)
	}
	if report.Planned != 100 || out.Operations < 5 || metric(out, "latency_mean") <= 0 {
		t.Errorf("planned %v requests, %v operations, %v", report.Planned, out.Operations, out.Values)
	}
	if got := string(numbers(9)); got != "1\n2\n3\n4\n5"[:9] {
		t.Errorf("content of the file: %q", got)
	}
}

// A server that is too slow for the rate makes the load say so: requests are left out, and the
// latencies of the others have the time that they waited.
func TestRateNotReached(t *testing.T) {
	out, _, err := generate(t, "nginx", fileLoad, file(t, http.StatusOK, numbers(1024), 200*time.Millisecond))
	if err != nil {
		t.Fatal(err)
	}
	if reached := metric(out, "reached"); reached > 30 {
		t.Errorf("reached %v %% of the rate, want at most the 20 answers/s of 4 connections", reached)
	}
	if got, naive := metric(out, "latency_mean"), metric(out, "naive_latency_mean"); got < naive+100_000 {
		t.Errorf("latency %v and naive %v µs, want a difference of 100 ms and more", got, naive)
	}
}

// A wrong answer ends the load with a line that says what is wrong, instead of figures.
func TestWrongAnswers(t *testing.T) {
	wrong := slices.Clone(numbers(1024))
	wrong[1000] = 'x'
	closed := workload.Params{Duration: time.Second, Connections: 4}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	nobody := l.Addr().String()
	l.Close()
	tests := []struct {
		name, tool string
		params     workload.Params
		address    string
		want       string
	}{
		{"another value", "memcached", closed, (&store{damage: func(v string) string { return "X" + v[1:] }}).serve(t), "memcached: GET unnest-"},
		{"a shorter value", "memcached", closed, (&store{damage: func(v string) string { return v[1:] }}).serve(t), "memcached: GET unnest-"},
		{"no memcached", "memcached", closed, nobody, "memcached: SET unnest-"},
		{"another file", "nginx", fileLoad, file(t, http.StatusOK, wrong, 0), "the server answers 1024 bytes, which are not the 1024 of the file"},
		{"a shorter file", "nginx", fileLoad, file(t, http.StatusOK, numbers(1023), 0), "the server answers 1023 bytes"},
		{"an error", "nginx", fileLoad, file(t, http.StatusBadGateway, numbers(1024), 0), "the server answers 502"},
		{"no web server", "nginx", fileLoad, nobody, "nginx: GET http://" + nobody + "/file: "},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			out, _, err := generate(t, tt.tool, tt.params, tt.address)
			if err == nil || !strings.Contains(err.Error(), tt.want) || strings.Contains(err.Error(), "\n") || out.Values != nil {
				t.Errorf("got %v, %v; want %q", out, err, tt.want)
			}
		})
	}
}

// A load that waits to be told to begin ends when nobody is left to tell it.
func TestWait(t *testing.T) {
	var s store
	target := s.serve(t)
	var stdout, stderr bytes.Buffer
	code := Main([]string{"memcached", "-target", target, "-wait"}, strings.NewReader(""), &stdout, &stderr)
	if code != 1 || stdout.String() != `{"error":"wait to be told to begin: EOF","seconds":0,"planned":0,"answers":0,"served":0,"late_p99":0,"latencies":null}`+"\n" {
		t.Errorf("exit code %d, %s", code, stdout.String())
	}
	if s.gets.Load() != 0 || s.sets.Load() != memcachedKeys {
		t.Errorf("%d GETs and %d SETs, want the keys alone", s.gets.Load(), s.sets.Load())
	}
	if code := Main([]string{"memcached", "-target", target, "-duration", "100ms"}, strings.NewReader(""), &stdout, &stderr); code != 0 {
		t.Errorf("without the flag: exit code %d, %s", code, stdout.String())
	}
}

func TestArguments(t *testing.T) {
	for _, args := range [][]string{
		nil, {"redis", "-target", "x:1"}, {"nginx"}, {"nginx", "-target", "x:1", "more"}, {"nginx", "-target", "x:1", "-connections", "0"},
		{"nginx", "-target", "x:1", "-rate", "-1"}, {"nginx", "-target", "x:1", "-duration", "0s"}, {"nginx", "-no-such-flag"},
	} {
		var stdout, stderr bytes.Buffer
		if code := Main(args, strings.NewReader("\n"), &stdout, &stderr); code != 1 || !strings.Contains(stdout.String(), `{"error":"`) {
			t.Errorf("%q: exit code %d, %s", args, code, stdout.String())
		}
	}
}
