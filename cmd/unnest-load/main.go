// Command unnest-load loads a server over a network and prints a report as JSON.
package main

import (
	"os"

	"unnest.io/unnest/internal/measure/load"
)

func main() {
	os.Exit(load.Main(os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}
