// Command unnest-conformance asks CNI plugins whether they conform to the
// specification.
package main

import (
	"os"

	"unnest/internal/conformance/program"
)

func main() {
	os.Exit(program.Main(os.Args[1:], os.Stdout, os.Stderr))
}
