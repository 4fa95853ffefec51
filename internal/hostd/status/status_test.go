package status

import (
	"encoding/json"
	"errors"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"
)

// Who asks often leaves no connection behind.
func TestAskClosesItsConnection(t *testing.T) {
	dir := t.TempDir()
	listener, err := net.Listen("unix", Socket(dir))
	if err != nil {
		t.Fatal(err)
	}
	closed := make(chan bool, 10)
	server := &http.Server{
		Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _ = json.NewEncoder(w).Encode(Status{Protocol: 7}) }),
		ConnState: func(_ net.Conn, s http.ConnState) {
			if s == http.StateClosed || s == http.StateIdle {
				closed <- s == http.StateClosed
			}
		},
	}
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(func() { server.Close() })
	for range 2 {
		if s, err := Ask(t.Context(), dir); err != nil || s.Protocol != 7 {
			t.Errorf("got %+v, %v", s, err)
		}
		select {
		case ok := <-closed:
			if !ok {
				t.Error("the connection stays open")
			}
		case <-time.After(time.Minute):
			t.Error("the connection does not end")
		}
	}
}

// A daemon that is stopped accepts connections and does not answer.
func TestAskStoppedDaemon(t *testing.T) {
	dir := t.TempDir()
	listener, err := net.Listen("unix", Socket(dir))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() })
	before := askTime
	askTime = 100 * time.Millisecond
	t.Cleanup(func() { askTime = before })
	_, err = Ask(t.Context(), dir)
	if !errors.Is(err, errSilent) || strings.Contains(err.Error(), "start it") {
		t.Errorf("status: got %v, want that it does not answer", err)
	}
	if err := CheckConnections(t.Context(), dir); !errors.Is(err, errSilent) {
		t.Errorf("check connections: got %v, want that it does not answer", err)
	}
}
