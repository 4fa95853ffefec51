package renewal

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"time"

	"unnest.io/unnest/internal/cni/hostclient"
	"unnest.io/unnest/internal/hostapi/hostdpb"
)

// Verb is the argument by which the binary of the plugins runs Main.
const Verb = "renew"

const usage = `Renews this guest's certificate at the host daemon.

  unnest-cni renew [flags]

The plugins renew it themselves when less than a third of its life is left. Run the command
daily with -if-due on a guest that may start no pod for weeks.

`

// Main is the command "unnest-cni renew". It returns the exit code: 0 done, 1 failed,
// 2 wrong usage.
func Main(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	var server netip.AddrPort
	var dir string
	flags := hostclient.Flags("unnest-cni renew", usage, stderr, &server, &dir)
	ifDue := flags.Bool("if-due", false, "do nothing unless less than a third of the certificate's life is left")
	if err := flags.Parse(args); err != nil {
		return 2
	}
	if flags.NArg() > 0 {
		fmt.Fprintf(stderr, "unexpected argument %q; unnest-cni renew -help shows the usage\n", flags.Arg(0))
		return 2
	}
	if err := run(ctx, server, dir, *ifDue, stdout); err != nil {
		fmt.Fprintln(stderr, err)
		return 1
	}
	return 0
}

func run(ctx context.Context, server netip.AddrPort, dir string, ifDue bool, stdout io.Writer) error {
	d, err := hostclient.Dial(server, dir)
	if err != nil {
		return err
	}
	defer d.Close()
	if ifDue && !Due(d.Certificate, time.Now()) {
		return nil
	}
	c, err := Renew(ctx, d, dir)
	switch {
	case hostclient.Unknown(err):
		return errors.New("renew certificate: the host daemon is older than this binary: update it, or enroll the guest again")
	case err != nil:
		return fmt.Errorf("renew certificate: %w", err)
	}
	if err := Use(ctx, server, dir); err != nil {
		return fmt.Errorf("use the renewed certificate: %w", err)
	}
	_, err = fmt.Fprintf(stdout, "renewed the certificate of %s: valid until %s\n", c.Subject.CommonName, c.NotAfter.Format(time.DateOnly))
	return err
}

// Use calls the daemon with the credentials in dir, which begins the grace of the earlier
// ones. Any answer of the daemon will do, such as that it cannot reach the VMM.
func Use(ctx context.Context, server netip.AddrPort, dir string) error {
	d, err := hostclient.Dial(server, dir)
	if err != nil {
		return err
	}
	defer d.Close()
	if _, err = d.Status(ctx, &hostdpb.StatusRequest{}); hostclient.Authenticated(err) {
		return nil
	}
	return err
}
