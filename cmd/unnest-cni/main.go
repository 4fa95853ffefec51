// Command unnest-cni is the CNI plugins of Unnest: it is the one by whose name
// it is called.
package main

import (
	"os"

	"unnest/internal/cni/plugin"
)

func main() {
	os.Exit(plugin.Main(os.Args[0], os.Stderr))
}
