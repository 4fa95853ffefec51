// Command unnest-cni is the CNI plugins of Unnest: it runs the plugin by whose name
// it is called, which may be netavark's plugin, too. With the argument renew it renews the guest's certificate, with credentials it
// installs those that the VMM hands to the guest, with install the plugins on a Kubernetes node, with reclaim it
// gives back the NICs of pods that ended without a DEL, and with docker-driver it serves Docker.
package main

import (
	"context"
	"os"
	"path/filepath"

	"unnest.io/unnest/internal/cni/brfusion"
	"unnest.io/unnest/internal/cni/credentials"
	"unnest.io/unnest/internal/cni/hostlo"
	"unnest.io/unnest/internal/cni/install"
	"unnest.io/unnest/internal/cni/libnetwork"
	"unnest.io/unnest/internal/cni/netavark"
	"unnest.io/unnest/internal/cni/plugin"
	"unnest.io/unnest/internal/cni/renewal"
)

func main() {
	if filepath.Base(os.Args[0]) == netavark.Name {
		os.Exit(netavark.Main(context.Background(), os.Args[1:], os.Stdin, os.Stdout))
	}
	if len(os.Args) > 1 && os.Args[1] == renewal.Verb {
		os.Exit(renewal.Main(context.Background(), os.Args[2:], os.Stdout, os.Stderr))
	}
	if len(os.Args) > 1 && os.Args[1] == credentials.Verb {
		os.Exit(credentials.Main(context.Background(), os.Args[2:], os.Stdout, os.Stderr))
	}
	if len(os.Args) > 1 && os.Args[1] == install.Verb {
		os.Exit(install.Main(context.Background(), os.Args[2:], os.Stderr))
	}
	if len(os.Args) > 1 && os.Args[1] == install.ReclaimVerb {
		os.Exit(install.ReclaimMain(context.Background(), os.Args[2:], os.Stderr))
	}
	if len(os.Args) > 1 && os.Args[1] == libnetwork.Verb {
		os.Exit(libnetwork.Main(context.Background(), os.Args[2:], os.Stderr))
	}
	os.Exit(plugin.Main(os.Args[0], os.Stderr, brfusion.Plugin, hostlo.Plugin))
}
