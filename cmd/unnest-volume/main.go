// Command unnest-volume attaches volumes and shared memory of a pod to the guest
// that it runs in.
package main

import (
	"context"
	"os"

	"unnest/internal/cni/volume"
)

func main() {
	os.Exit(volume.Main(context.Background(), os.Args[1:], os.Stdin, os.Stderr))
}
