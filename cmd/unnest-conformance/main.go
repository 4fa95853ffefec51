// Command unnest-conformance checks CNI plugins against the specification.
package main

import (
	"os"

	"unnest.io/unnest/internal/cli/conformance"
)

func main() {
	os.Exit(conformance.Main(os.Args[1:], os.Stdout, os.Stderr))
}
