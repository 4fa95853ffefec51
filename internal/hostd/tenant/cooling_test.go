package tenant

import (
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
	"unnest.io/unnest/internal/hostd/contain"
	"unnest.io/unnest/internal/hostd/ipam"
	"unnest.io/unnest/internal/hostd/metrics"
)

// lockedBuffer is a log that several goroutines write.
type lockedBuffer struct {
	mu   sync.Mutex
	text strings.Builder
}

// Write implements io.Writer.
func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

// has reports whether a line has each of the texts.
func (b *lockedBuffer) has(texts ...string) bool {
	return slices.ContainsFunc(strings.Split(b.String(), "\n"), func(line string) bool {
		return !slices.ContainsFunc(texts, func(text string) bool { return !strings.Contains(line, text) })
	})
}

// Writing the addresses that cool down is no request: a timer does it. A panic there ends
// that write only.
func TestPanicOfCoolingFile(t *testing.T) {
	dir := t.TempDir()
	m, log := metrics.New(), new(lockedBuffer)
	p := contain.New(m, slog.New(slog.NewTextHandler(log, nil)))
	tenant, err := New(tenantPolicy(), dir, slog.New(slog.DiscardHandler), p.Try)
	if err != nil {
		t.Fatal(err)
	}
	read, broken := tenant.file.read, atomic.Bool{}
	broken.Store(true)
	tenant.file.read = func() []ipam.Cooling {
		if broken.Load() {
			panic("bug in read")
		}
		return read()
	}
	tenant.file.writeAfter(0)
	for begin := time.Now(); !log.has("level=ERROR", "bug in read", "cooling.go"); time.Sleep(time.Millisecond) {
		if time.Since(begin) > time.Minute {
			t.Fatalf("no line with the stack; log:\n%s", log)
		}
	}
	w := httptest.NewRecorder()
	m.Handler().ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	if text := w.Body.String(); !strings.Contains(text, "unnest_hostd_panics_total 1\n") {
		t.Errorf("metrics do not count the panic:\n%s", text)
	}
	broken.Store(false)
	tenant.file.changed()
	tenant.file.flush()
	if _, err := os.Stat(tenant.file.path); err != nil {
		t.Errorf("after the panic: %v", err)
	}
}
