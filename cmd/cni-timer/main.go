// Command cni-timer stands in for the CNI plugin by whose name it is called, and
// writes down how long each run of it takes.
package main

import (
	"os"

	"unnest/internal/cni/timer"
)

func main() {
	os.Exit(timer.Main(os.Args[0]))
}
