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

	"unnest.io/unnest/internal/cni/attachment"
	"unnest.io/unnest/internal/cni/brfusion"
	"unnest.io/unnest/internal/cni/hostclient"
	"unnest.io/unnest/internal/cni/hostlo"
	"unnest.io/unnest/internal/cni/loopback"
)

// Verb is the argument by which the binary of the plugins runs Main.
const Verb = "install"

const usage = `Installs the plugins and a network configuration on this node, and keeps
them there.

  unnest-cni install [flags]

It installs the configuration once the plugin can work: it then reaches the host
daemon, and its credentials are valid. It gives back the NICs of pods that ended
without a DEL. GET /healthz answers 200, or 503 with the cause. With -node it
reports the node's conditions UnnestNetworkReady and
UnnestNetworkPoliciesEnforced, and its NICs as the resource unnest.io/nic. At
its end, plugins and configuration stay, because running pods need them.

With -chain it is for a node without the host daemon: the first network of the
node stays that of pods, and the plugins of -config are called after its own, by
a copy of its configuration that comes first. The copy goes when the DaemonSet
of this pod is deleted.

With -wireguard it makes the WireGuard device unnest-wg for the tunnels between
fractions, notes its public key in the node's annotation
unnest.io/wireguard-key, and has the device follow those of the other nodes. The
private key is in the kernel only. Without -wireguard, and when the DaemonSet is
deleted, it removes the device.

`

// Main is the command "unnest-cni install". It runs until a signal and returns the exit code:
// 0 ended by a signal, 1 failed, 2 wrong usage.
func Main(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	flags := flag.NewFlagSet("unnest-cni install", flag.ContinueOnError)
	n := Node{Binary: "/proc/self/exe", Plugins: []string{brfusion.Plugin.Name, hostlo.Plugin.Name}, count: count}
	flags.StringVar(&n.BinDir, "bin-dir", "/opt/cni/bin", "`DIRECTORY` of the node's plugins")
	flags.StringVar(&n.Config, "config", "/etc/unnest-network/10-unnest.conflist", "`FILE` with the network configuration list\n")
	flags.StringVar(&n.ConfDir, "conf-dir", "/etc/cni/net.d", "`DIRECTORY` of the node's configurations")
	flags.BoolVar(&n.Chain, "chain", false, "call the plugins of -config after those of the node's first network")
	listen := flags.String("listen", "127.0.0.1:9478", "`ADDRESS:PORT` of /healthz")
	metrics := flags.String("metrics", "", "`ADDRESS:PORT` of /metrics, for Prometheus; empty: none")
	node := flags.String("node", "", "`NAME` of the node to report to the API server; empty: do not report")
	encrypt := flags.Bool("wireguard", false, "encrypt tunnels between fractions; needs -node")
	reserve := flags.Int("reserve", 0, "NICs for pods that do not ask for unnest.io/nic")
	interval := flags.Duration("interval", 10*time.Second, "time between two checks")
	if code, ends := hostclient.Parse(flags, args, 0, usage, stdout, stderr); ends {
		return code
	}
	if *encrypt && *node == "" {
		fmt.Fprintln(stderr, "unnest-cni install: -wireguard: want -node, too: the keys of nodes are in the API server")
		return 2
	}
	if *interval <= 0 || *reserve < 0 {
		fmt.Fprintf(stderr, "unnest-cni install: -interval %v, -reserve %d: want a positive time and no negative number\n", *interval, *reserve)
		return 2
	}
	if n.Chain {
		n.Plugins = []string{hostlo.Plugin.Name}
	}
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	k := keeper{ensure: n.Ensure, log: slog.New(slog.NewTextHandler(stderr, nil)), now: health{err: errors.New("not checked yet"), chained: n.Chain, encrypted: *encrypt}}
	var ended sync.WaitGroup
	if *node != "" {
		r, err := newReporter(*node, *reserve)
		if err != nil {
			fmt.Fprintln(stderr, "unnest-cni install:", err)
			return 2
		}
		k.report = r.report
		if n.Chain || *encrypt {
			defer func() { n.undo(r, k.log) }()
		}
		if *encrypt {
			e := newEncryption(*node, k.log)
			k.ensure = e.ensure(n.Ensure, n.Chain)
			ended.Go(func() { e.follow(ctx, r) })
			select { // else the first check would take the label of a node that has its peers
			case <-e.known:
			case <-ctx.Done():
			case <-time.After(*interval):
			}
		}
	}
	if !*encrypt { // it was switched off
		if err := loopback.RemoveWireGuard(); err != nil {
			k.log.Error("remove the WireGuard device", "error", err)
		}
	}
	ended.Go(func() {
		if err := reclaim(ctx, &attachment.Reclaimer{Log: k.log, Clean: cleanInPod, NoLeases: true}); err != nil {
			k.log.Error("NICs of pods that end without a DEL are not given back until the next start", "error", err)
		}
	})
	defer ended.Wait()
	defer stop()
	if err := k.run(ctx, *listen, *metrics, *interval); err != nil {
		fmt.Fprintln(stderr, "unnest-cni install:", err)
		return 1
	}
	return 0
}

// keeper checks a node again and again.
type keeper struct {
	ensure   func(context.Context) (NICs, error)
	report   func(context.Context, health) error // nil: none
	log      *slog.Logger
	reported string // why the last report failed; "": it did not

	mu  sync.Mutex
	now health
}

// run checks at every interval, and serves /healthz and /metrics, until ctx ends.
func (k *keeper) run(ctx context.Context, listen, metrics string, interval time.Duration) error {
	failed := make(chan error, 2)
	for _, s := range []struct {
		path, address string
		handler       http.HandlerFunc
	}{{"/healthz", listen, k.health}, {"/metrics", metrics, k.metrics}} {
		if s.address == "" {
			continue
		}
		l, err := net.Listen("tcp", s.address)
		if err != nil {
			return fmt.Errorf("serve %s: %w", s.path, err)
		}
		mux := http.NewServeMux()
		mux.HandleFunc("GET "+s.path, s.handler)
		server := &http.Server{Handler: mux, ReadHeaderTimeout: time.Minute}
		defer server.Close()
		go func() { failed <- fmt.Errorf("serve %s: %w", s.path, server.Serve(l)) }()
	}
	for {
		k.check(ctx)
		select {
		case <-ctx.Done():
			return nil
		case err := <-failed:
			return err
		case <-time.After(interval):
		}
	}
}

// checkLimit bounds one check. The plugin waits for a daemon that restarts.
const checkLimit = time.Minute

// check checks the node, logs a change, and reports it.
func (k *keeper) check(ctx context.Context) {
	limited, cancel := context.WithTimeout(ctx, checkLimit)
	defer cancel()
	nics, err := k.ensure(limited)
	if ctx.Err() != nil {
		return
	}
	k.mu.Lock()
	before := k.now.err
	k.now.nics, k.now.err = nics, err
	now := k.now
	k.mu.Unlock()
	switch {
	case err != nil && (before == nil || before.Error() != err.Error()):
		k.log.Error("the node cannot connect pods", "cause", err)
	case err == nil && before != nil:
		k.log.Info("the node can connect pods")
	}
	k.tell(ctx, now)
}

// undo removes the copy of the node's network and the WireGuard device if the DaemonSet of this pod is being deleted: nobody would keep the
// copy like its original, nor follow the keys of other nodes.
func (n Node) undo(r *reporter, log *slog.Logger) {
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Second)
	defer cancel()
	if !r.deleted(ctx) {
		return
	}
	if err := loopback.RemoveWireGuard(); err != nil {
		log.Error("remove the WireGuard device", "error", err)
	}
	if !n.Chain {
		return
	}
	if err := removeCopy(n.installed()); err != nil {
		log.Error("the network of the node stays chained", "error", err)
	}
}

// tell reports to the API server. A failure does not keep pods from getting NICs.
func (k *keeper) tell(ctx context.Context, h health) {
	if k.report == nil {
		return
	}
	text := ""
	if err := k.report(ctx, h); err != nil {
		text = err.Error()
	}
	if ctx.Err() == nil && text != k.reported {
		k.reported = text
		if text != "" {
			k.log.Error("the node's status is not reported; trying again", "cause", text)
		}
	}
}

func (k *keeper) found() health {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.now
}

func (k *keeper) health(w http.ResponseWriter, _ *http.Request) {
	if cause := k.found().err; cause != nil {
		http.Error(w, strings.ReplaceAll(cause.Error(), "\n", "; "), http.StatusServiceUnavailable)
		return
	}
	_, _ = io.WriteString(w, "ok\n") // an error is the client's
}

func (k *keeper) metrics(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
	_ = k.found().metrics(w) // an error is the client's
}
