package fleet

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"unnest.io/unnest/internal/hostd/status"
)

// The error of a daemon that does not start quotes the last line of its log.
func TestAwaitDaemon(t *testing.T) {
	why := errors.New("told to stop")
	stopped, stop := context.WithCancelCause(t.Context())
	stop(why)
	ended := func(err error) <-chan error {
		c := make(chan error, 1)
		c <- err
		return c
	}
	tests := []struct {
		name  string
		ctx   context.Context
		says  string
		ended <-chan error
		words []string // of the error
	}{
		{"it fails", t.Context(), "", ended(errors.New("exit status 1")), []string{"it ended", "exit status 1", "listen: address in use"}},
		{"it ends", t.Context(), "", ended(nil), []string{"it ended", "listen: address in use"}},
		{"ready", t.Context(), "READY=1", nil, nil},
		{"something else", t.Context(), "STOPPING=1", nil, []string{"STOPPING=1"}},
		{"stopped", stopped, "", nil, []string{"not ready on 10.200.0.1:7443", "told to stop", "listen: address in use"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			f := openFleet(t)
			if err := os.WriteFile(filepath.Join(f.Lab.Dir, daemonLog), []byte("starting\nlisten: address in use\n"), 0o600); err != nil {
				t.Fatal(err)
			}
			ready, says := io.Pipe()
			defer says.Close()
			if tt.says != "" {
				go func() { _, _ = says.Write([]byte(tt.says)) }()
			}
			err := f.awaitDaemon(tt.ctx, ready, tt.ended)
			if (err == nil) != (tt.words == nil) {
				t.Fatalf("got %v", err)
			}
			if err == nil {
				return
			}
			for _, w := range tt.words {
				if !strings.Contains(err.Error(), w) {
					t.Errorf("%q is not in: %v", w, err)
				}
			}
			if strings.Contains(err.Error(), "%!") {
				t.Errorf("badly worded: %v", err)
			}
		})
	}
}

func TestLastLog(t *testing.T) {
	f := openFleet(t)
	if got := f.lastLog(); !strings.Contains(got, daemonLog) {
		t.Errorf("no log: got %q, want an error that names it", got)
	}
	for content, want := range map[string]string{"": "", "one\n": "one", "one\ntwo\n\n": "two"} {
		if err := os.WriteFile(filepath.Join(f.Lab.Dir, daemonLog), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		if got := f.lastLog(); got != want {
			t.Errorf("%q: got %q, want %q", content, got, want)
		}
	}
}

// A daemon that does not run is found; one that runs is left alone, and keeps its configuration.
func TestRepairDaemonLeavesOneThatRuns(t *testing.T) {
	f := openFleet(t)
	if err := f.AskDaemon(t.Context()); err == nil || err.Error() != "it does not run" {
		t.Errorf("no daemon: got %v", err)
	}
	listener, err := net.Listen("unix", status.Socket(f.Lab.Dir))
	if err != nil {
		t.Fatal(err)
	}
	code := http.StatusOK
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(code) })}
	t.Cleanup(func() { _ = server.Close() })
	go func() { _ = server.Serve(listener) }()
	if repaired, err := f.RepairDaemon(t.Context(), "/nowhere"); err != nil || repaired {
		t.Errorf("a daemon that runs: repaired %v, %v", repaired, err)
	}
	code = http.StatusServiceUnavailable
	if err := f.AskDaemon(t.Context()); err == nil || !strings.Contains(err.Error(), "503") {
		t.Errorf("a daemon that stops: got %v", err)
	}
}
