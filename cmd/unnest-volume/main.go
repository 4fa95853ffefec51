// Command unnest-volume attaches volumes and shared memory of a pod to the guest
// that it runs in. With the argument driver it serves the kubelet of a Kubernetes node.
package main

import (
	"context"
	"os"

	"unnest.io/unnest/internal/cni/volume"
	"unnest.io/unnest/internal/cni/volumedriver"
)

func main() {
	if len(os.Args) > 1 && os.Args[1] == volumedriver.Verb {
		os.Exit(volumedriver.Main(context.Background(), os.Args[2:], os.Stdout, os.Stderr))
	}
	os.Exit(volume.Main(context.Background(), os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}
