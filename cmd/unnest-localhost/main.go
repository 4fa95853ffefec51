// Command unnest-localhost checks whether the fractions of a pod share one localhost.
package main

import (
	"os"

	"unnest.io/unnest/internal/cli/localhost"
)

func main() {
	os.Exit(localhost.Main(os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}
