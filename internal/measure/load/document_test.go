package load

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"unnest.io/unnest/internal/measure/workload"
)

// documentLoad runs unnest-load apache and returns its report.
func documentLoad(t *testing.T, target string, args ...string) workload.LoadReport {
	t.Helper()
	var out, problem strings.Builder
	Main(append([]string{"apache", "-target", target, "-size", "1000", "-duration", "1s"}, args...), strings.NewReader(""), &out, &problem)
	var r workload.LoadReport
	if err := json.Unmarshal([]byte(out.String()), &r); err != nil {
		t.Fatalf("%v: %s%s", err, out.String(), problem.String())
	}
	return r
}

// documentServer serves the document of 1000 bytes and counts connections and their hosts.
func documentServer(t *testing.T, handle http.HandlerFunc) (address string, connections *atomic.Int64) {
	connections = &atomic.Int64{}
	server := httptest.NewUnstartedServer(handle)
	server.Config.ConnState = func(_ net.Conn, s http.ConnState) {
		if s == http.StateNew {
			connections.Add(1)
		}
	}
	server.Start()
	t.Cleanup(server.Close)
	return server.Listener.Addr().String(), connections
}

// Each request has a connection of its own, from the addresses in turn, unless connections stay
// open.
func TestDocuments(t *testing.T) {
	var one, two atomic.Int64
	address, connections := documentServer(t, func(w http.ResponseWriter, r *http.Request) {
		switch host, _, _ := net.SplitHostPort(r.RemoteAddr); host {
		case "127.0.0.2":
			one.Add(1)
		case "127.0.0.3":
			two.Add(1)
		}
		if r.URL.Path != "/1000" {
			t.Errorf("path %s", r.URL.Path)
		}
		_, _ = w.Write(numbers(1000))
	})
	r := documentLoad(t, address, "-rate", "50", "-patience", "60s", "-connections", "4", "-sources", "127.0.0.2,127.0.0.3")
	// On a busy machine some requests of the last second are not sent in time, or answered after its end.
	count := r.Latencies[workload.AllRequests].Count
	if r.Error != "" || r.Planned != 50 || count < 1 || count > 50 || len(r.Failures) > 0 {
		t.Fatalf("report %+v", r)
	}
	if n := connections.Load(); float64(n) < count || n > 50 || one.Load()+two.Load() != n || one.Load()-two.Load() > 1 || two.Load()-one.Load() > 1 {
		t.Errorf("%d connections, %d and %d from the addresses", connections.Load(), one.Load(), two.Load())
	}
	if r.Served < 1 || r.Bytes < 1000*r.Served || r.Bytes > 2000*r.Served || r.Served > r.Answers || !(r.CPU > 0) || r.Processors < 1 || r.Elapsed < 0.9 {
		t.Errorf("%v bytes of %v of %v answers, CPU %v s of %v s on %d processors", r.Bytes, r.Served, r.Answers, r.CPU, r.Elapsed, r.Processors)
	}
}

// A load with patience says why requests have no answer and goes on. One without ends.
func TestDocumentFailures(t *testing.T) {
	closed, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	closed.Close()
	var n atomic.Int64
	address, _ := documentServer(t, func(w http.ResponseWriter, r *http.Request) {
		switch n.Add(1) % 4 {
		case 0:
			_, _ = fmt.Fprint(w, "something else")
		case 1:
			panic(http.ErrAbortHandler)
		case 2:
			time.Sleep(3 * time.Second)
		default:
			_, _ = w.Write(numbers(1000))
		}
	})
	r := documentLoad(t, closed.Addr().String(), "-rate", "10", "-patience", "60s")
	if r.Failures[workload.Refused] != 10 || r.Latencies[workload.AllRequests].Count != 0 {
		t.Errorf("a closed port: %+v", r)
	}
	if _, err := workload.ParseDomainLoad(encoded(t, r)); err == nil || !strings.Contains(err.Error(), "10 refused") {
		t.Errorf("a closed port: %v", err)
	}
	r = documentLoad(t, address, "-rate", "8", "-connections", "8", "-patience", "1s")
	for _, cause := range []string{workload.Wrong, workload.Reset, workload.TimedOut} {
		if r.Failures[cause] == 0 {
			t.Errorf("no request %s: %v", cause, r.Failures)
		}
	}
	if r := documentLoad(t, closed.Addr().String(), "-rate", "10"); !strings.Contains(r.Error, "refused") {
		t.Errorf("without patience: %+v", r)
	}
}

func encoded(t *testing.T, v any) []byte {
	t.Helper()
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return b
}
