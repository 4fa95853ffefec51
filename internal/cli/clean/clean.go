// Package clean is the command "unnest clean": it removes what killed runs left on this
// machine.
package clean

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"unnest.io/unnest/internal/cli/terminal"
	"unnest.io/unnest/internal/cli/usage"
	"unnest.io/unnest/internal/measure/machines/thishost"
	"unnest.io/unnest/internal/testbed/doctor"
	"unnest.io/unnest/internal/testbed/image"
	"unnest.io/unnest/internal/testbed/lab"
)

// Options are what the command line asks for.
type Options struct {
	Streams terminal.Streams
	DryRun  bool // list what would be removed, and remove nothing
	Cache   bool // remove everything from the cache that is not in use
}

// NewCmd returns the command, which calls run.
func NewCmd(streams terminal.Streams, run func(context.Context, Options) error) *cobra.Command {
	o := Options{Streams: streams}
	cmd := &cobra.Command{
		Use:   "clean",
		Short: "Remove what killed runs left on this machine",
		Long: `Remove what killed runs left on this machine: processes (QEMU, host daemons,
clients), network namespaces with their bridges, TAPs and rules, state directories,
work directories and control groups. It prints each of them.

Active runs are not touched, nor are guests of "unnest vm up": stop these with
"unnest vm down". Run directories stay, too. "unnest bench" cleans its own state
directory before each run.

The cache ($UNNEST_CACHE, ~/.cache/unnest) keeps guest images, unpacked Debians,
downloads and snapshots of guests until it has more than 20 GiB ($UNNEST_CACHE_GIB) or
did not use them for 30 days. The least recently used go first. What a process uses, or used
within the last hour (a root of hack/host: within a day), stays.`,
		Example: `  unnest clean --dry-run
  unnest clean
  unnest clean --cache`,
		Args: usage.Args(),
		RunE: func(cmd *cobra.Command, _ []string) error { return run(cmd.Context(), o) },
	}
	cmd.Flags().BoolVar(&o.DryRun, "dry-run", false, "list what would be removed, and remove nothing")
	cmd.Flags().BoolVar(&o.Cache, "cache", false, "also empty the cache, except for what is in use or was used within the last hour")
	return cmd
}

// Run removes what is left.
func Run(ctx context.Context, o Options) error {
	if err := doctor.Preflight(ctx, doctor.System(image.CacheDir()), doctor.ForCleaning); err != nil {
		return err
	}
	labs, err := lab.Clean(ctx, o.DryRun)
	work, workErr := thishost.CleanWork(image.CacheDir(), o.DryRun)
	pruned, pruneErr := prune(ctx, o)
	return errors.Join(err, workErr, pruneErr, list(o, labs, work, pruned), cacheLine(ctx, o))
}

// prune removes from the cache what it has too much, or all.
func prune(ctx context.Context, o Options) ([]image.Entry, error) {
	limit, err := image.Limit()
	if err != nil {
		return nil, err
	}
	if o.Cache {
		limit = 0
	}
	return image.Prune(ctx, image.CacheDir(), limit, o.DryRun)
}

// cacheLine prints how large the cache is.
func cacheLine(ctx context.Context, o Options) error {
	all, err := image.Entries(ctx, image.CacheDir())
	if err != nil || len(all) == 0 {
		return err
	}
	var size, used int64
	for _, e := range all {
		size += e.Size
		if e.InUse {
			used += e.Size
		}
	}
	_, err = fmt.Fprintf(o.Streams.Err, "the cache %s has %s, of which %s are in use or were within the last hour\n", image.CacheDir(), gigabytes(size), gigabytes(used))
	return err
}

func gigabytes(n int64) string { return fmt.Sprintf("%.1f GiB", float64(n)/(1<<30)) }

// list prints what was removed, or would be.
func list(o Options, labs, work []string, cache []image.Entry) error {
	verb := "removed"
	if o.DryRun {
		verb = "would remove"
	}
	var text strings.Builder
	for _, dir := range labs {
		fmt.Fprintf(&text, "%s lab %s with its processes and network namespaces\n", verb, dir)
	}
	for _, dir := range work {
		fmt.Fprintf(&text, "%s work directory %s with its control groups\n", verb, dir)
	}
	for _, e := range cache {
		fmt.Fprintf(&text, "%s %s from the cache, %s, used last on %s\n", verb, e.Path, gigabytes(e.Size), e.Used.Format(time.DateTime))
	}
	if text.Len() == 0 {
		text.WriteString("nothing to remove\n")
	}
	_, err := io.WriteString(o.Streams.Out, text.String())
	return err
}
