package plan

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"unnest.io/unnest/internal/cli/usage"
	"unnest.io/unnest/internal/plan/costing"
	"unnest.io/unnest/internal/plan/manifest"
	"unnest.io/unnest/internal/plan/summary"
	"unnest.io/unnest/internal/plan/trace"
	page "unnest.io/unnest/internal/report/document"
	"unnest.io/unnest/internal/report/plans"
)

// Run reads, plans and prints. It writes nothing before all is planned.
func Run(ctx context.Context, opts Options) error {
	c, err := parse(opts)
	if err != nil {
		return err
	}
	if err := c.writable(); err != nil {
		return err
	}
	p := newProgress(opts.Streams.Err, opts.Streams.ErrWidth)
	defer p.clear()
	doc, err := c.document(ctx, p)
	p.clear()
	if err != nil {
		return err
	}
	return opts.Output.write(opts.Streams, doc)
}

// writable returns an error unless all output files can be written.
func (c *command) writable() error {
	if c.target.dir != "" {
		if err := mayFill(c.target.dir); err != nil {
			return err
		}
	}
	return c.opts.Output.check()
}

// document returns what the flags ask for.
func (c *command) document(ctx context.Context, p *progress) (doc page.Document, err error) {
	if err := c.guess(ctx); err != nil {
		return doc, err
	}
	if c.opts.Replay != "" {
		return c.replay(ctx, p)
	}
	var measured summary.Latency
	if c.hostlo.dir != "" {
		if measured, err = c.hostlo.read(); err != nil {
			return doc, err
		}
	}
	in, err := c.read(ctx, p)
	switch {
	case err != nil:
		return doc, err
	case c.opts.Least > 0 && c.setting.Today == nil:
		return doc, usage.Errorf("--min-saving: only plans of a cluster with its nodes have steps: add nodes to the kubectl dump, or omit it")
	case c.setting.Today != nil && (c.target.scheme == "hostlo" || c.target.scheme == "spread"):
		return doc, usage.Errorf("--write %s: a cluster with its nodes gets the VMs of the plan best or whole: write %s or whole:%s", c.opts.Write, c.target.dir, c.target.dir)
	case c.opts.Explain != "":
		e, err := c.setting.Explain(ctx, in.users, c.opts.Explain)
		return plans.Explain(e.Plans, e.Models, summary.Dollars(e.Bound)), err
	case c.links.from != "":
		return c.frontier(ctx, in, measured, p)
	}
	return c.plans(ctx, in, p)
}

// replay returns what VMs cost while pods come and go.
func (c *command) replay(ctx context.Context, p *progress) (doc page.Document, err error) {
	from := c.sources[0]
	if len(c.sources) > 1 {
		return doc, usage.Errorf("--replay: the traces are of the formats %s and %s: replay them one after the other", from.format, c.sources[1].format)
	}
	p.phase("reading " + strings.Join(from.paths, ", "))
	histories, period, read, err := trace.ReadHistory(ctx, from.format, from.paths, c.trace)
	if err != nil {
		return doc, err
	}
	how := costing.Replayed{From: period.From, To: period.To, Minimum: c.offer.BillingMinimum, Migrations: c.migrations}
	all, err := c.setting.Replays(ctx, histories, how, func(n int) { p.users(n, len(histories)) })
	if err != nil {
		return doc, fmt.Errorf("replay: %w", err)
	}
	r := summary.Replay{
		From: period.From.Seconds(), To: period.To.Seconds(), Minimum: how.Minimum.Seconds(), Migrations: how.Migrations,
		Settings: c.settings(), Traces: []summary.Reading{newReading(read)}, PerUser: all,
	}
	r.Add()
	return plans.Replay(r), nil
}

// frontier returns the cost of VMs against the communication between them.
func (c *command) frontier(ctx context.Context, in input, measured summary.Latency, p *progress) (doc page.Document, err error) {
	users, use, err := c.links.joined(in.users)
	if err != nil {
		return doc, fmt.Errorf("plan: %w", err)
	}
	all, err := c.setting.Choices(ctx, users, c.links.pairs, func(n int) { p.users(n, in.count) })
	if err != nil {
		return doc, fmt.Errorf("plan: %w", err)
	}
	var price *summary.CutPrice
	if c.hostlo.dir != "" {
		price = summary.NewCutPrice(measured, c.hostlo.linkCPU, c.setting.Catalogue())
	}
	return plans.Frontier(summary.NewFrontier(all, use, price, c.settings(), in.readings)), nil
}

// plans returns the plans of all users, and writes the files of the target.
func (c *command) plans(ctx context.Context, in input, p *progress) (doc page.Document, err error) {
	users, samples, err := c.readUse(ctx, in, p)
	if err != nil {
		return doc, err
	}
	all, err := c.setting.Plans(ctx, users, func(n int) { p.users(n, in.count) })
	if err != nil {
		return doc, fmt.Errorf("plan: %w", err)
	}
	rows, split, pools := costing.Parts(all)
	if err := summary.Addable(rows); err != nil {
		return doc, fmt.Errorf("plan: %w", err)
	}
	result := summary.Sum(rows, c.settings(), in.readings, c.shard)
	if c.setting.Today != nil {
		result.Today = c.setting.Today.Summary(pools)
	}
	if c.setting.Sizing != nil {
		result.TakeUse(costing.Use(c.setting.Sizing, all, c.sourcesOfUse(), c.opts.Headroom, samples))
	}
	if c.target.dir != "" {
		files, err := c.files(result, split)
		if err == nil {
			err = writeFiles(c.target.dir, files)
		}
		if err != nil {
			return doc, err
		}
	}
	return plans.Plan(result), nil
}

// files returns what --write writes: manifests of split pods, VMs of a cluster, and requests by
// use. That there is nothing is an error.
func (c *command) files(r summary.Plan, split []manifest.Pod) ([]manifest.File, error) {
	all := below("manifests", manifest.Files(split))
	if r.Today != nil {
		all = append(all, below("vms", manifest.VMs(*r.Today, c.target.scheme == "whole"))...)
	}
	if r.Use != nil {
		all = append(all, below("requests", manifest.Requests(r.Use.Changes))...)
	}
	if len(all) == 0 {
		return nil, errors.New("--write: the plan splits no pod, and the input has neither nodes nor a use: there is nothing to write; name a dump of kubectl get nodes,pods -A -o json, or omit --write")
	}
	return all, nil
}

// below puts files into a directory.
func below(dir string, files []manifest.File) []manifest.File {
	files = slices.Clone(files)
	for i := range files {
		files[i].Name = dir + "/" + files[i].Name
	}
	return files
}

// mayFill returns an error unless the directory is empty or does not exist.
func mayFill(dir string) error {
	entries, err := os.ReadDir(dir)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return nil
	case err != nil:
		return fmt.Errorf("--write: %w: name a new directory", err)
	case len(entries) > 0:
		return fmt.Errorf("--write: %s is not empty: name a new directory", dir)
	}
	return nil
}

// writeFiles writes files into a new or empty directory: all files, or none.
func writeFiles(dir string, files []manifest.File) (err error) {
	dir = filepath.Clean(dir)
	fail := func(err error) error { return fmt.Errorf("write to %s: %w", dir, withoutPath(err)) }
	building, err := os.MkdirTemp(filepath.Dir(dir), "."+filepath.Base(dir)+".")
	if err != nil {
		return fail(err)
	}
	success := false
	defer func() {
		if !success {
			err = errors.Join(err, os.RemoveAll(building))
		}
	}()
	for _, f := range files {
		path := filepath.Join(building, f.Name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, f.Text, 0o644)); err != nil {
			return fail(err)
		}
	}
	if err := errors.Join(os.Chmod(building, 0o755), mayFill(dir)); err != nil {
		return err
	}
	if err := os.Remove(dir); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fail(err)
	}
	if err := os.Rename(building, dir); err != nil {
		return fail(err)
	}
	success = true
	return nil
}

// withoutPath removes the name of the temporary directory from an error.
func withoutPath(err error) error {
	var path *fs.PathError
	var link *os.LinkError
	switch {
	case errors.As(err, &path):
		return path.Err
	case errors.As(err, &link):
		return link.Err
	}
	return err
}

// progress is the status line on a terminal. A nil progress prints nothing.
type progress struct {
	w     io.Writer
	width int
	last  time.Time
	shown bool
}

// newProgress returns the progress on a terminal with so many columns, nil for 0.
func newProgress(w io.Writer, width int) *progress {
	if width == 0 {
		return nil
	}
	return &progress{w: w, width: width}
}

func (p *progress) phase(text string) {
	if p != nil {
		p.show(text + " …")
	}
}

// users shows how many users are planned, at most ten times a second.
func (p *progress) users(done, all int) {
	if p != nil && time.Since(p.last) >= 100*time.Millisecond {
		p.show(fmt.Sprintf("planned %d of %d users …", done, max(done, all)))
	}
}

// show rewrites the line, cut to the width of the terminal.
func (p *progress) show(text string) {
	runes := []rune(text)
	if len(runes) >= p.width {
		runes = runes[:p.width-1]
	}
	p.last, p.shown = time.Now(), true
	_, _ = fmt.Fprintf(p.w, "\r\x1b[K%s", string(runes))
}

func (p *progress) clear() {
	if p != nil && p.shown {
		_, _ = io.WriteString(p.w, "\r\x1b[K")
		p.shown = false
	}
}
