package contain

import (
	"bytes"
	"errors"
	"io"
	"log/slog"
	"net/http/httptest"
	"strings"
	"testing"

	"unnest.io/unnest/internal/hostd/metrics"
)

// A panic becomes an error, a line with its stack and a count. Other errors pass.
func TestContain(t *testing.T) {
	m, log := metrics.New(), new(bytes.Buffer)
	p := New(m, slog.New(slog.NewTextHandler(log, nil)))
	if err := p.Contain("read", func() error { return io.EOF }); !errors.Is(err, io.EOF) || log.Len() > 0 {
		t.Errorf("got %v and log %q, want EOF and nothing", err, log)
	}
	if err := p.Contain("scan", func() error { panic("bug") }); !errors.Is(err, ErrPanic) {
		t.Errorf("got %v, want ErrPanic", err)
	}
	p.Try("flush", func() { panic("other bug") })
	for _, want := range []string{"in=scan panic=bug stack=", "contain_test.go", `in=flush panic="other bug"`} {
		if !strings.Contains(log.String(), want) {
			t.Errorf("log does not have %q:\n%s", want, log)
		}
	}
	w := httptest.NewRecorder()
	m.Handler().ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
	if !strings.Contains(w.Body.String(), "unnest_hostd_panics_total 2\n") {
		t.Error("metrics do not count two panics")
	}
}
