package credentials

import (
	"context"
	"flag"
	"fmt"
	"io"
	"net/netip"
	"os/signal"
	"syscall"
	"time"

	"unnest.io/unnest/internal/cni/hostclient"
	"unnest.io/unnest/internal/cni/netconf"
)

// Verb is the argument by which the binary of the plugins runs Main.
const Verb = "credentials"

const usage = `Installs the credentials that the VMM hands to this guest on a CD-ROM.

  unnest-cni credentials [flags]

They are those of hostd.yaml's "credentials: vmm". Present ones that the host
daemon accepts stay. Only root can read the drive. Run the command at boot with
-wait, or all the time with -watch, which also recovers from credentials that
have expired.

`

// Main is the command "unnest-cni credentials". It returns the exit code: 0 done or ended by a
// signal, 1 failed, 2 wrong usage.
func Main(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	flags := flag.NewFlagSet("unnest-cni credentials", flag.ContinueOnError)
	n := &node{find: find, out: stdout}
	flags.StringVar(&n.dir, "credentials", netconf.DefaultCredentials, "`DIRECTORY` of this guest's credentials")
	flags.TextVar(&n.server, "server", netip.AddrPort{}, "`ADDRESS:PORT` of the host daemon (default: the medium says it)")
	limit := flags.Duration("wait", 0, "how long to wait for the medium")
	watch := flags.Bool("watch", false, "check again and again until a signal")
	interval := flags.Duration("interval", time.Minute, "time between two checks of -watch")
	if code, ends := hostclient.Parse(flags, args, 0, usage, stdout, stderr); ends {
		return code
	}
	if *limit < 0 || *interval <= 0 {
		fmt.Fprintf(stderr, "unnest-cni credentials: -wait %v, -interval %v: want no negative and a positive time\n", *limit, *interval)
		return 2
	}
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	if *watch {
		n.watch(ctx, *interval, stderr)
		return 0
	}
	if err := n.wait(ctx, *limit); err != nil {
		fmt.Fprintln(stderr, "unnest-cni credentials:", err)
		return 1
	}
	return 0
}

// waitInterval is the time between two looks for the medium.
const waitInterval = time.Second

// wait updates the credentials, and tries again until limit has passed.
func (n *node) wait(ctx context.Context, limit time.Duration) error {
	for end := time.Now().Add(limit); ; {
		err := n.update(ctx)
		if err == nil || time.Now().After(end) || !pause(ctx, waitInterval) {
			return err
		}
	}
}

// watch updates the credentials at every interval until ctx ends: without credentials every
// waitInterval. It prints an error once.
func (n *node) watch(ctx context.Context, interval time.Duration, stderr io.Writer) {
	for printed := ""; ; {
		err, next := n.update(ctx), interval
		text := ""
		if err != nil && ctx.Err() == nil {
			text, next = err.Error(), min(interval, waitInterval)
		}
		if text != "" && text != printed {
			fmt.Fprintln(stderr, text)
		}
		if printed = text; !pause(ctx, next) {
			return
		}
	}
}

// pause waits. It reports false if ctx ends first.
func pause(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}
