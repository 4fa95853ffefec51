package daemon

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"time"

	"unnest.io/unnest/internal/hostd/api"
	"unnest.io/unnest/internal/hostd/contain"
	"unnest.io/unnest/internal/hostd/status"
)

// handler serves the host's operator:
//
//	/healthz                  200 while the daemon takes requests of guests
//	/status                   status.Status, as JSON; over TCP without guests, tenants and segments
//	/metrics                  for Prometheus
//	POST /connections/check   ends connections whose certificates were revoked; not over TCP
//	POST /nics/detach         takes a NIC from its pod: status.Detachment, as JSON; not over TCP
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
		s := status.Status{Version: d.config.Build.Version, Revision: d.config.Build.Revision, Protocol: api.Protocol, Since: d.since}
		if fromRoot(r) {
			s = d.status(r.Context())
		}
		_ = json.NewEncoder(w).Encode(s) // the client may have gone
	})
	mux.HandleFunc("POST /connections/check", rootOnly(func(w http.ResponseWriter, _ *http.Request) {
		d.api.CloseRefused()
		w.WriteHeader(http.StatusNoContent)
	}))
	mux.HandleFunc("POST /nics/detach", rootOnly(d.serveDetach))
	mux.Handle("GET /metrics", d.metrics.Handler())
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if d.host.Panics.Contain(r.URL.Path, func() error { mux.ServeHTTP(w, r); return nil }) != nil {
			http.Error(w, contain.ErrPanic.Error(), http.StatusInternalServerError)
		}
	})
}

// fromRoot reports whether a request came by the unix socket, which only root can reach.
// Every user of the host reaches a loopback address, and so do guests whose VMM forwards
// to it.
func fromRoot(r *http.Request) bool {
	a, ok := r.Context().Value(http.LocalAddrContextKey).(net.Addr)
	return ok && a.Network() == "unix"
}

func rootOnly(serve http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if !fromRoot(r) {
			http.Error(w, "want the unix socket", http.StatusForbidden)
			return
		}
		serve(w, r)
	}
}

// listenHTTP opens the socket in the state directory, which only root can reach,
// and the configured address, if there is one.
func (d *daemon) listenHTTP(ctx context.Context) ([]net.Listener, error) {
	path := status.Socket(d.config.StateDir)
	// A socket that answers is another daemon's; one that does not is left over.
	if c, err := net.DialTimeout("unix", path, time.Second); err == nil {
		_ = c.Close()
		return nil, fmt.Errorf("state directory %s is in use by another daemon: stop that first", d.config.StateDir)
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("remove an earlier daemon's socket: %w", err)
	}
	local, err := new(net.ListenConfig).Listen(ctx, "unix", path)
	if err == nil {
		err = os.Chmod(path, 0o600)
	}
	if err != nil {
		return nil, fmt.Errorf("listen for the operator: %w", err)
	}
	if !d.config.Quotas.HTTP.IsValid() {
		return []net.Listener{local}, nil
	}
	tcp, err := d.listenTCP(ctx, d.config.Quotas.HTTP)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("listen for the operator: %w", err), local.Close())
	}
	return []net.Listener{local, tcp}, nil
}

// serveHTTP serves until stop. stop closes the listeners as well, because the server does
// not know those that it has not begun to serve.
func (d *daemon) serveHTTP(listeners []net.Listener) (stop func()) {
	server := &http.Server{
		Handler: d.handler(), ReadHeaderTimeout: 5 * time.Second,
		ErrorLog: slog.NewLogLogger(d.config.Logger.Handler(), slog.LevelWarn),
	}
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
