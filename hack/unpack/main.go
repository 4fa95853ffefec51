// Command unpack puts the Debian of the guests into the cache. make quickstart runs it
// while it compiles unnest, which takes longer.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"

	"golang.org/x/sys/unix"

	"unnest.io/unnest/internal/testbed/image"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, unix.SIGTERM)
	defer stop()
	b := image.Builder{Cache: image.CacheDir(), Progress: func(step string) { _, _ = fmt.Fprintln(os.Stdout, step) }}
	if _, err := b.Root(ctx, image.DefaultRecipe()); err != nil {
		fmt.Fprintln(os.Stderr, "unpack:", err)
		os.Exit(1)
	}
}
