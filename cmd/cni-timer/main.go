// Command cni-timer runs the CNI plugin by whose name it is called, and records how
// long each run takes.
package main

import (
	"os"

	"unnest.io/unnest/internal/measure/study/startup/timer"
)

func main() {
	os.Exit(timer.Main(os.Args[0]))
}
