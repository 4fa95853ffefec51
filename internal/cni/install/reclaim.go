package install

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/netip"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"github.com/containernetworking/cni/pkg/skel"

	"unnest.io/unnest/internal/cni/attachment"
	"unnest.io/unnest/internal/cni/brfusion"
	"unnest.io/unnest/internal/cni/hostclient"
	"unnest.io/unnest/internal/cni/renewal"
	"unnest.io/unnest/internal/hostapi/hostdpb"
)

// ReclaimVerb is the argument by which the binary of the plugins runs ReclaimMain.
const ReclaimVerb = "reclaim"

const reclaimUsage = `Gives back the NICs of pods that ended without a DEL, on a guest outside of
Kubernetes.

  unnest-cni reclaim [flags]

It acts when the network namespace of such a pod has ended, for attachments of
every network. At its start it tells the host daemon that the guest has booted,
which ends the attachments from before, and it renews the guest's certificate
when that is due. unnest-cni install does all this on a node of Kubernetes.
unnest-cni docker-driver does it for Docker's containers, after 15 minutes.

`

// ReclaimMain is the command "unnest-cni reclaim". It runs until a signal and returns the exit code: 0 ended by a signal, 1 failed,
// 2 wrong usage.
func ReclaimMain(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	g := greeter{log: slog.New(slog.NewTextHandler(stderr, nil))}
	flags := hostclient.Flags("unnest-cni reclaim", &g.server, &g.credentials)
	if code, ends := hostclient.Parse(flags, args, 0, reclaimUsage, stdout, stderr); ends {
		return code
	}
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	var greets sync.WaitGroup
	greets.Go(func() { g.run(ctx) })
	defer greets.Wait()
	if err := reclaim(ctx, &attachment.Reclaimer{Log: g.log, Clean: brfusion.Clean}); err != nil {
		stop()
		fmt.Fprintln(stderr, "unnest-cni reclaim:", err)
		return 1
	}
	return 0
}

// reclaim gives back the NICs of pods that ended without a DEL, until ctx ends.
func reclaim(ctx context.Context, r *attachment.Reclaimer) error {
	if err := r.Run(ctx); err != nil {
		return fmt.Errorf("give back NICs of pods that ended: %w", err)
	}
	return nil
}

// cleanInPod is brfusion.Clean for a process in a pod, which does not see the leases of the guest's IPAM plugins. A DEL of such a
// plugin would succeed there and release nothing.
func cleanInPod(ctx context.Context, network string, args *skel.CmdArgs) error {
	args.StdinData = nil
	return brfusion.Clean(ctx, network, args)
}

// greeter calls the host daemon from time to time.
type greeter struct {
	server      netip.AddrPort
	credentials string
	log         *slog.Logger
}

// The pauses after a call that was answered, and after one that was not, which double.
const (
	greetInterval              = time.Hour
	firstGreetPause, lastPause = time.Second, 10 * time.Second
)

// run calls until ctx ends. It logs an error once.
func (g greeter) run(ctx context.Context) {
	logged := ""
	for pause := firstGreetPause; ; pause = min(2*pause, lastPause) {
		text, wait := "", pause
		if err := g.greet(ctx); err != nil {
			text = err.Error()
		} else {
			pause, wait = firstGreetPause, greetInterval
		}
		if ctx.Err() == nil && text != "" && text != logged {
			g.log.Error("tell the host daemon that the guest has booted; trying again", "error", text)
		}
		logged = text
		select {
		case <-ctx.Done():
			return
		case <-time.After(wait):
		}
	}
}

// greet makes a call, with which the client says which boot of the guest this is, and renews the certificate if that is due.
func (g greeter) greet(ctx context.Context) error {
	d, err := hostclient.Dial(g.server, g.credentials)
	if err != nil {
		return err
	}
	defer d.Close()
	if _, err := d.Status(ctx, &hostdpb.StatusRequest{}); err != nil {
		return err
	}
	return renewal.Attempt(ctx, d, g.credentials, attachment.StateDir)
}
