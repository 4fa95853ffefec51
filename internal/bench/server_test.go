package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"unnest/internal/place"
)

// containsAll reports whether text has every one of words.
func containsAll(text string, words ...string) bool {
	for _, w := range words {
		if !strings.Contains(text, w) {
			return false
		}
	}
	return true
}

func TestStartServer(t *testing.T) {
	tests := []struct {
		name   string
		script string
		want   []string // in the error; none: it is ready
	}{
		{"ready", "echo Server listening on 5001; sleep 61.25", nil},
		{"ready by its other output", "echo Server listening on 5001 >&2; sleep 61.25", nil},
		{"ready in pieces", "printf 'warning\nServer '; sleep 0.1; printf 'listening on'; sleep 61.25", nil},
		{"ends at once", "echo cannot bind: port 5001 is taken; exit 3", []string{"it ended at once", "exit code 3", "cannot bind: port 5001 is taken"}},
		{"ends at once, content", "echo nothing to do", []string{"it ended at once", "nothing to do"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			serving, stop := context.WithCancel(t.Context())
			defer stop()
			err := startServer(t.Context(), serving, place.Local{}, serverCommand{[]string{"sh", "-c", tt.script}, "Server listening on"})
			if len(tt.want) == 0 {
				if err != nil {
					t.Error(err)
				}
				return
			}
			if err == nil || !containsAll(err.Error(), tt.want...) || strings.Contains(err.Error(), "%!") {
				t.Errorf("got %v, want %q", err, tt.want)
			}
		})
	}
}

func TestStartServerWithoutProgram(t *testing.T) {
	err := startServer(t.Context(), t.Context(), place.Local{}, serverCommand{[]string{"no-such-server"}, "ready"})
	if err == nil || !strings.Contains(err.Error(), "no-such-server") {
		t.Errorf("got %v; want an error that names the program", err)
	}
}

// silent is a place whose commands say one thing and then run until ctx ends.
type silent struct{ says string }

func (silent) String() string { return "silent place" }

func (silent) Put(context.Context, string, fs.FileMode, io.Reader) error { return nil }

func (s silent) Start(ctx context.Context, c place.Command) (place.Process, error) {
	_, err := io.WriteString(c.Stdout, s.says)
	return process(func() error { <-ctx.Done(); return ctx.Err() }), err
}

// A server that never takes clients is waited for until ctx ends, or for its
// patience; it lives as long as serving, not as ctx.
func TestStartServerNeverReady(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		serving, stop := context.WithCancel(t.Context())
		why := errors.New("told to stop")
		ctx, cancel := context.WithCancelCause(t.Context())
		time.AfterFunc(time.Second, func() { cancel(why) })
		start := time.Now()
		err := startServer(ctx, serving, silent{}, serverCommand{[]string{"iperf3"}, "Server listening on"})
		if !errors.Is(err, why) || time.Since(start) != time.Second {
			t.Errorf("got %v after %v, want %v after 1 s", err, time.Since(start), why)
		}
		start = time.Now()
		err = startServer(t.Context(), serving, silent{"warming up"}, serverCommand{[]string{"iperf3"}, "Server listening on"})
		if err == nil || !containsAll(err.Error(), `does not say "Server listening on" after 30s`, "warming up") || time.Since(start) != serverPatience {
			t.Errorf("got %v after %v", err, time.Since(start))
		}
		stop()
		synctest.Wait()
	})
}

// Several servers are started at once; the error of one says which.
func TestStartServers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		serving, stop := context.WithCancel(t.Context())
		start := time.Now()
		commands := []serverCommand{{[]string{"iperf3", "-s"}, "ready"}, {[]string{"sockperf"}, "ready"}}
		if err := startServers(t.Context(), serving, &target{place: silent{"ready"}}, commands); err != nil || time.Since(start) != 0 {
			t.Errorf("got %v after %v", err, time.Since(start))
		}
		stop()
		synctest.Wait()
	})
}

// The text is found wherever writes cut it, and after any amount of noise.
func TestWatch(t *testing.T) {
	const text = "Server listening on"
	for _, noise := range []int{0, 1, watched - 5, watched, 3 * watched} {
		whole := strings.Repeat("#", noise) + text
		for _, cut := range []int{0, 1, len(text) / 2, len(text) - 1} {
			for _, piece := range []int{1, 7, watched + 1} {
				t.Run(fmt.Sprintf("%d noise, cut %d, pieces of %d", noise, cut, piece), func(t *testing.T) {
					w := &watch{text: []byte(text), found: make(chan struct{})}
					early, late := whole[:noise+cut], whole[noise+cut:]
					writeAll(t, w, early, piece)
					if w.isFound() {
						t.Fatal("found before it was written")
					}
					writeAll(t, w, late+" port\n", piece)
					if !w.isFound() {
						t.Error("not found")
					}
					writeAll(t, w, text, piece) // a second time: no panic
				})
			}
		}
	}
}

func (w *watch) isFound() bool {
	select {
	case <-w.found:
		return true
	default:
		return false
	}
}

func writeAll(t *testing.T, w io.Writer, text string, piece int) {
	t.Helper()
	for len(text) > 0 {
		n := min(piece, len(text))
		if written, err := io.WriteString(w, text[:n]); written != n || err != nil {
			t.Fatalf("wrote %d of %d: %v", written, n, err)
		}
		text = text[n:]
	}
}

func TestWatchQuotesTheEnd(t *testing.T) {
	w := &watch{text: []byte("ready"), found: make(chan struct{})}
	writeAll(t, w, strings.Repeat("#", 2*watched)+"\nlast words\n", 1000)
	if got := w.String(); len(got) > watched || !strings.HasSuffix(got, "\nlast words") {
		t.Errorf("got %d bytes that end with %q", len(got), got[len(got)-20:])
	}
}
