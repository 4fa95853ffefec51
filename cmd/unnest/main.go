// Command unnest measures what nested virtualization costs and removes the
// duplicated network layer. It holds nothing but the call of package cli.
package main

import (
	"os"

	"unnest.io/unnest/internal/cli"
)

func main() {
	os.Exit(cli.Main())
}
