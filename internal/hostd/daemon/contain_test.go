package daemon

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"

	"unnest.io/unnest/internal/hostapi/hostdpb"
	"unnest.io/unnest/internal/hostd/contain"
	"unnest.io/unnest/internal/hostd/record"
	"unnest.io/unnest/internal/netdev/antispoof"
	"unnest.io/unnest/internal/netdev/nft"
	"unnest.io/unnest/internal/vmm"
)

// logLines are the lines that a logger has written.
type logLines struct {
	mu    sync.Mutex
	lines []string
}

func (l *logLines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lines = append(l.lines, string(p))
	return len(p), nil
}

func (l *logLines) logger() *slog.Logger { return slog.New(slog.NewTextHandler(l, nil)) }

// with returns the lines that have each of the texts.
func (l *logLines) with(texts ...string) (found []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, line := range l.lines {
		all := true
		for _, text := range texts {
			all = all && strings.Contains(line, text)
		}
		if all {
			found = append(found, line)
		}
	}
	return found
}

// testDaemon makes a daemon that serves nobody yet.
func testDaemon(t *testing.T, dir string) (*daemon, *logLines) {
	t.Helper()
	log := &logLines{}
	d, err := newDaemon(Config{StateDir: dir, Quotas: testQuotas(), Logger: log.logger()})
	if err != nil {
		t.Fatal(err)
	}
	useQuotas(t, d)
	return d, log
}

// useQuotas gives a daemon the tenants of its configuration, as far as that needs no privilege.
func useQuotas(t testing.TB, d *daemon) {
	t.Helper()
	made, err := d.makeTenants(d.config.Quotas)
	if err != nil {
		t.Fatal(err)
	}
	d.use(made, d.config.Quotas)
}

// serveTest has a daemon serve guests until the test ends.
func serveTest(t *testing.T, d *daemon, dir string) (address string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	serveOn(t, d, dir, l)
	return l.Addr().String()
}

func serveOn(t *testing.T, d *daemon, dir string, l net.Listener) {
	t.Helper()
	tlsConfig, err := serverTLS(dir, d.config.Quotas.Listen.Addr())
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	ready := make(chan struct{})
	d.config.Ready = func(net.Addr) { close(ready) }
	go func() { ended <- d.serve(ctx, l, tlsConfig) }()
	<-ready
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

func scrape(d *daemon) string {
	w := httptest.NewRecorder()
	d.metrics.Handler().ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	return w.Body.String()
}

// A panic in a handler ends its request only.
func TestPanicOfRequest(t *testing.T) {
	dir := t.TempDir()
	d, log := testDaemon(t, dir)
	config, c := issue(t, dir, "node1")
	withRecord(t, dir, c)
	d.tenants["default"] = nil
	client := dial(t, serveTest(t, d, dir), config)
	for range 2 {
		_, err := client.Status(t.Context(), &hostdpb.StatusRequest{})
		if grpcstatus.Code(err) != codes.Internal || !strings.Contains(err.Error(), contain.ErrPanic.Error()) {
			t.Errorf("got %v, want Internal with %q", err, contain.ErrPanic)
		}
	}
	if lines := log.with("level=ERROR", "panic", "auth.go"); len(lines) < 2 {
		t.Errorf("%d lines name the stack, want one for each panic; log:\n%s", len(lines), log.lines)
	}
	if text := scrape(d); !strings.Contains(text, "unnest_hostd_panics_total ") || strings.Contains(text, "unnest_hostd_panics_total 0\n") {
		t.Error("metrics do not count the panics")
	}
}

func TestPanicOfHTTP(t *testing.T) {
	d, log := testDaemon(t, t.TempDir())
	d.tenants["default"] = nil
	w := httptest.NewRecorder()
	d.handler().ServeHTTP(w, overUnix(t, http.MethodGet, "/status"))
	if w.Code != http.StatusInternalServerError || len(log.with("panic", "/status")) != 1 {
		t.Errorf("got code %d, want 500; log:\n%s", w.Code, log.lines)
	}
	if text := scrape(d); !strings.Contains(text, "unnest_hostd_panics_total") { // the scrape reads the status too
		t.Errorf("no metrics:\n%s", text)
	}
}

// Code of a VMM that panics ends the run of its guest, and code that panics with a lock held
// ends its request: the next request is served.
func TestPanicOfVMM(t *testing.T) {
	for _, call := range []string{"Devices", "Next"} {
		t.Run(call, func(t *testing.T) {
			dir := t.TempDir()
			d, log := testDaemon(t, dir)
			d.config.UnplugTimeout = time.Second
			var ofVMM, ofPorts atomic.Bool
			d.host.Dial = func(context.Context, record.Guest) (vmm.VMM, error) {
				v := newFakeVMM(2)
				v.broken = func(called string) {
					if called == call && !ofVMM.Swap(true) {
						panic("bug in " + call)
					}
				}
				return v, nil
			}
			d.host.Ports.Open = func() (*antispoof.Table, error) { // called with the lock of ports held
				if !ofPorts.Swap(true) {
					panic("bug in ports")
				}
				return nil, errors.New("no packet filter")
			}
			config, c := issue(t, dir, "node1")
			withRecord(t, dir, c)
			client := dial(t, serveTest(t, d, dir), config)
			var err error
			for range 3 {
				_, err = client.AttachNIC(t.Context(), &hostdpb.AttachNICRequest{ContainerId: "c", Interface: "eth0"})
			}
			if err == nil || !strings.Contains(err.Error(), "no packet filter") {
				t.Errorf("after the panics: got %v, want the answer of the ports", err)
			}
			if s, err := client.Status(t.Context(), &hostdpb.StatusRequest{}); err != nil || s.GetSlotsTotal() != 2 {
				t.Errorf("status after the panics is %v, %v", s, err)
			}
			if len(log.with("bug in ports")) != 1 || len(log.with("bug in "+call)) != 1 {
				t.Errorf("log has not each panic once:\n%s", log.lines)
			}
		})
	}
}

// A panic in what follows the kernel's events about a packet filter ends that look only.
func TestPanicOfWatch(t *testing.T) {
	d, log := testDaemon(t, t.TempDir())
	ctx, cancel := context.WithCancel(t.Context())
	calls := 0
	d.watchFilter(ctx, "test", func(context.Context, func(nft.Generation, error)) error {
		if calls++; calls == 1 {
			panic("bug in watch")
		}
		cancel()
		return nil
	})
	if calls != 2 || len(log.with("level=ERROR", "bug in watch")) != 1 {
		t.Errorf("watched %d times, want again after the panic; log:\n%s", calls, log.lines)
	}
}
