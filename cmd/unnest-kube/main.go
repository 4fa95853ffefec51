// Command unnest-kube runs in a Kubernetes cluster: it admits pods that are to be split over nodes,
// and looks after their fractions.
package main

import (
	"context"
	"os"

	"unnest.io/unnest/internal/kube/splitcontroller"
)

func main() {
	os.Exit(splitcontroller.Main(context.Background(), os.Args[1:], os.Stderr))
}
