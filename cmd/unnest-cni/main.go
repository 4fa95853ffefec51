// Command unnest-cni is the CNI plugins of Unnest: it runs the plugin by whose name
// it is called, which may be netavark's plugin, too. With the argument renew it renews the guest's certificate, with credentials it
// installs those that the VMM hands to the guest, with install the plugins on a Kubernetes node, with reclaim it
// gives back the NICs of pods that ended without a DEL, and with docker-driver it serves Docker.
package main

import (
	"context"
	"flag"
	"io"
	"os"
	"path/filepath"

	"unnest.io/unnest/internal/cni/brfusion"
	"unnest.io/unnest/internal/cni/credentials"
	"unnest.io/unnest/internal/cni/hostclient"
	"unnest.io/unnest/internal/cni/hostlo"
	"unnest.io/unnest/internal/cni/install"
	"unnest.io/unnest/internal/cni/libnetwork"
	"unnest.io/unnest/internal/cni/netavark"
	"unnest.io/unnest/internal/cni/plugin"
	"unnest.io/unnest/internal/cni/renewal"
)

const usage = `The CNI plugins brfusion and hostlo, by whose names a runtime calls this
program, and commands for guests:

  unnest-cni renew            renews this guest's certificate
  unnest-cni credentials      installs those that the VMM hands to this guest
  unnest-cni install          installs the plugins on a node of Kubernetes
  unnest-cni reclaim          gives back NICs of pods that ended without a DEL
  unnest-cni docker-driver    serves Docker

Each of them has --help.
`

var commands = map[string]func(ctx context.Context, args []string, stdout, stderr io.Writer) int{
	renewal.Verb: renewal.Main, credentials.Verb: credentials.Main, install.Verb: install.Main,
	install.ReclaimVerb: install.ReclaimMain, libnetwork.Verb: libnetwork.Main,
}

func main() {
	ctx, args := context.Background(), os.Args[1:]
	if filepath.Base(os.Args[0]) == netavark.Name {
		os.Exit(netavark.Main(ctx, args, os.Stdin, os.Stdout))
	}
	if len(args) > 0 && commands[args[0]] != nil {
		os.Exit(commands[args[0]](ctx, args[1:], os.Stdout, os.Stderr))
	}
	if len(args) > 0 && os.Getenv("CNI_COMMAND") == "" { // else a runtime calls
		flags := flag.NewFlagSet("unnest-cni", flag.ContinueOnError)
		if code, ends := hostclient.Parse(flags, args, 0, usage, os.Stdout, os.Stderr); ends {
			os.Exit(code)
		}
	}
	os.Exit(plugin.Main(os.Args[0], os.Stderr, brfusion.Plugin, hostlo.Plugin))
}
