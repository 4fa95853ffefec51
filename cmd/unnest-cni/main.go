// Command unnest-cni is the CNI plugins of Unnest: it runs the plugin by whose name
// it is called.
package main

import (
	"os"

	"unnest/internal/cni/brfusion"
	"unnest/internal/cni/hostlo"
	"unnest/internal/cni/plugin"
)

func main() {
	os.Exit(plugin.Main(os.Args[0], os.Stderr, brfusion.Plugin, hostlo.Plugin))
}
