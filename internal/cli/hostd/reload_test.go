package hostd

import (
	"bytes"
	"context"
	"os"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"unnest.io/unnest/internal/cli/terminal"
	"unnest.io/unnest/internal/hostd/status"
)

// text is a writer that can be read at the same time.
type text struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (w *text) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.b.Write(p)
}

func (w *text) count(part string) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return strings.Count(w.b.String(), part)
}

// The daemon follows its file and reads it at SIGHUP, which does not end it. A mistake is one
// line of the log, and in the status.
func TestFollowsFile(t *testing.T) {
	if signal.Ignored(syscall.SIGHUP) { // as nohup leaves it; the daemon heeds that
		signal.Notify(make(chan os.Signal, 1), syscall.SIGHUP)
	}
	config, state := configFile(t, ""), t.TempDir()
	good, err := os.ReadFile(config)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var stderr text
	ended := make(chan error, 1)
	go func() {
		cmd := NewCmd(terminal.Streams{Err: &stderr}, Run)
		cmd.SetArgs([]string{"--config", config, "--state", state, "--listen", "127.0.0.1:0"})
		ended <- cmd.ExecuteContext(ctx)
	}()
	eventually := func(part string, want int) {
		t.Helper()
		for end := time.Now().Add(time.Minute); stderr.count(part) != want; time.Sleep(10 * time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("%q is %d times in the log, want %d:\n%s", part, stderr.count(part), want, &stderr.b)
			}
		}
	}
	write := func(content string) {
		t.Helper()
		if err := os.WriteFile(config, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	eventually("hostd: serving", 1)
	if err := syscall.Kill(os.Getpid(), syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	eventually("reload the configuration", 1)
	write("tenants: [{name: default}]\nguests: 5\n")
	eventually("is not reloaded", 1)
	s, err := status.Ask(t.Context(), state)
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if err := printStatus(&out, s); err != nil || !strings.Contains(out.String(), "NOT in use: "+config+":") {
		t.Errorf("got %v and:\n%s", err, &out)
	}
	if stderr.count("level=DEBUG") > 0 {
		t.Error("the log has debug lines")
	}
	write(string(good) + "http: 127.0.0.1:1\nlogLevel: debug\n")
	eventually("restart=http", 1)
	if s, err = status.Ask(t.Context(), state); err != nil || s.Configuration.Error != "" || len(s.Configuration.Restart) != 1 {
		t.Errorf("got %+v, %v", s.Configuration, err)
	}
	out.Reset()
	if err := printStatus(&out, s); err != nil || !strings.Contains(out.String(), "when the daemon starts again: http") {
		t.Errorf("got %v and:\n%s", err, &out)
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
