package daemon

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// socketFile is where the host's operator asks, in the state directory.
const socketFile = "hostd.sock"

// handler serves the host's operator:
//
//	/healthz  200 while requests of guests are taken
//	/status   Status, as JSON
//	/metrics  for Prometheus
func (d *daemon) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) {
		if d.stopping.Load() {
			http.Error(w, "stopping", http.StatusServiceUnavailable)
			return
		}
		_, _ = fmt.Fprintln(w, "ok")
	})
	mux.HandleFunc("GET /status", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(d.status(r.Context())) // who has gone away has
	})
	mux.Handle("GET /metrics", promhttp.HandlerFor(d.metrics.registry, promhttp.HandlerOpts{}))
	return mux
}

// listenHTTP opens the socket in the state directory, which only root reaches,
// and the configured address, if there is one.
func (d *daemon) listenHTTP(ctx context.Context) ([]net.Listener, error) {
	path := filepath.Join(d.config.StateDir, socketFile)
	// One that answers is another daemon's; one that does not is left over.
	if c, err := net.DialTimeout("unix", path, time.Second); err == nil {
		_ = c.Close()
		return nil, fmt.Errorf("state directory %s is another daemon's: stop that first", d.config.StateDir)
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("remove a former daemon's socket: %w", err)
	}
	local, err := new(net.ListenConfig).Listen(ctx, "unix", path)
	if err == nil {
		err = os.Chmod(path, 0o600)
	}
	if err != nil {
		return nil, fmt.Errorf("listen for the operator: %w", err)
	}
	if !d.config.Policy.HTTP.IsValid() {
		return []net.Listener{local}, nil
	}
	tcp, err := new(net.ListenConfig).Listen(ctx, "tcp", d.config.Policy.HTTP.String())
	if err != nil {
		return nil, errors.Join(fmt.Errorf("listen for the operator: %w", err), local.Close())
	}
	return []net.Listener{local, tcp}, nil
}

// serveHTTP serves until stop, which closes the listeners. The server itself does
// not know those that it has not begun to serve.
func (d *daemon) serveHTTP(listeners []net.Listener) (stop func()) {
	server := &http.Server{Handler: d.handler(), ReadHeaderTimeout: 5 * time.Second}
	for _, l := range listeners {
		go func() { _ = server.Serve(l) }()
	}
	return func() {
		_ = server.Close()
		for _, l := range listeners {
			_ = l.Close()
		}
	}
}

// socketClient asks at a unix socket, whatever the URL's host.
func socketClient(path string) *http.Client {
	return &http.Client{Transport: &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", path)
		},
	}}
}

// AskStatus asks the daemon with the given state directory.
func AskStatus(ctx context.Context, stateDir string) (Status, error) {
	var s Status
	path := filepath.Join(stateDir, socketFile)
	client := socketClient(path)
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://hostd/status", nil)
	if err != nil {
		return s, err
	}
	answer, err := client.Do(r)
	if err != nil {
		return s, fmt.Errorf("ask the host daemon at %s: %w: does it run, with this state directory?", path, err)
	}
	defer answer.Body.Close()
	if err := json.NewDecoder(answer.Body).Decode(&s); err != nil {
		return s, fmt.Errorf("read the host daemon's status: %w", err)
	}
	return s, nil
}
