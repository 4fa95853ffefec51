// Command unnest-localhost asks the fractions of a pod whether together they have
// one localhost.
package main

import (
	"os"

	"unnest/internal/cli/localhost"
)

func main() {
	os.Exit(localhost.Main(os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}
