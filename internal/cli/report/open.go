package report

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"

	"unnest.io/unnest/internal/cli/usage"
)

// page completes the options of --open: the report is the HTML file of the run, unless they name another.
func (o *Options) page() error {
	switch {
	case o.Output.JSON || o.Output.Format != "" && o.Output.Format != "html":
		return usage.Errorf("--open shows HTML: leave out --json and --format")
	case o.Output.File == "" && len(o.Dirs) > 1:
		return usage.Errorf("--open with several runs: add --output FILE.html")
	case o.Output.File == "":
		o.Output.File = filepath.Join(o.Dirs[0], "report.html")
	}
	o.Output.Format = "html"
	return nil
}

// show opens a file with the program that the desktop has for it.
func show(ctx context.Context, path string) error {
	program, err := exec.LookPath("xdg-open")
	if err != nil {
		return fmt.Errorf("open %s: there is no xdg-open: install xdg-utils, or open the file in a browser", path)
	}
	if out, err := exec.CommandContext(ctx, program, path).CombinedOutput(); err != nil {
		return fmt.Errorf("open %s: %w: %s", path, errors.Join(err, context.Cause(ctx)), out)
	}
	return nil
}
