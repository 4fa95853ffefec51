package install

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"time"
)

// Verb is the argument by which the binary of the plugins runs Main.
const Verb = "install"

const usage = `Installs the plugins and a network configuration on this node, and keeps them there.

  unnest-cni install [flags]

It installs the configuration once the plugin can work: it then reaches the host daemon, and
its credentials are valid. GET /healthz answers 200, or 503 with the cause. At its end, plugins
and configuration stay, because running pods need them.

`

// Main is the command "unnest-cni install". It runs until a signal and returns the exit code:
// 0 ended by a signal, 1 failed, 2 wrong usage.
func Main(ctx context.Context, args []string, stderr io.Writer) int {
	flags := flag.NewFlagSet("unnest-cni install", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.Usage = func() {
		fmt.Fprint(stderr, usage)
		flags.PrintDefaults()
	}
	n := Node{Binary: "/proc/self/exe", Plugins: []string{"brfusion", "hostlo"}}
	flags.StringVar(&n.BinDir, "bin-dir", "/opt/cni/bin", "`DIRECTORY` of the node's plugins")
	flags.StringVar(&n.Config, "config", "/etc/unnest-network/10-unnest.conflist", "`FILE` with the network configuration list")
	flags.StringVar(&n.ConfDir, "conf-dir", "/etc/cni/net.d", "`DIRECTORY` of the node's network configurations")
	listen := flags.String("listen", "127.0.0.1:9478", "`ADDRESS:PORT` of /healthz")
	interval := flags.Duration("interval", 10*time.Second, "time between two checks")
	if err := flags.Parse(args); err != nil {
		return 2
	}
	if flags.NArg() > 0 || *interval <= 0 {
		fmt.Fprintf(stderr, "arguments %q, -interval %v: want no arguments and a positive time; unnest-cni install -help shows the usage\n", flags.Args(), *interval)
		return 2
	}
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	k := keeper{ensure: n.Ensure, log: slog.New(slog.NewTextHandler(stderr, nil)), cause: errors.New("not checked yet")}
	if err := k.run(ctx, *listen, *interval); err != nil {
		fmt.Fprintln(stderr, err)
		return 1
	}
	return 0
}

// keeper checks a node again and again.
type keeper struct {
	ensure func(context.Context) error
	log    *slog.Logger

	mu    sync.Mutex
	cause error // why pods cannot get their NICs; nil: they can
}

// run checks at every interval, and serves /healthz, until ctx ends.
func (k *keeper) run(ctx context.Context, listen string, interval time.Duration) error {
	l, err := net.Listen("tcp", listen)
	if err != nil {
		return fmt.Errorf("serve /healthz: %w", err)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", k.health)
	server := &http.Server{Handler: mux, ReadHeaderTimeout: time.Minute}
	failed := make(chan error, 1)
	go func() { failed <- server.Serve(l) }()
	defer server.Close()
	for {
		k.check(ctx)
		select {
		case <-ctx.Done():
			return nil
		case err := <-failed:
			return fmt.Errorf("serve /healthz: %w", err)
		case <-time.After(interval):
		}
	}
}

// checkLimit bounds one check. The plugin waits for a daemon that restarts.
const checkLimit = time.Minute

// check checks the node, and logs a change.
func (k *keeper) check(ctx context.Context) {
	limited, cancel := context.WithTimeout(ctx, checkLimit)
	defer cancel()
	err := k.ensure(limited)
	if ctx.Err() != nil {
		return
	}
	k.mu.Lock()
	before := k.cause
	k.cause = err
	k.mu.Unlock()
	switch {
	case err != nil && (before == nil || before.Error() != err.Error()):
		k.log.Error("pods cannot get NICs", "cause", err)
	case err == nil && before != nil:
		k.log.Info("pods can get NICs")
	}
}

func (k *keeper) health(w http.ResponseWriter, _ *http.Request) {
	k.mu.Lock()
	cause := k.cause
	k.mu.Unlock()
	if cause != nil {
		http.Error(w, strings.ReplaceAll(cause.Error(), "\n", "; "), http.StatusServiceUnavailable)
		return
	}
	_, _ = io.WriteString(w, "ok\n") // an error is the client's
}
