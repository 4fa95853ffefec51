package plan

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"slices"
	"strconv"
	"strings"

	"unnest/internal/cli/usage"
	"unnest/internal/plan/trace"
)

// liveCluster stands for a cluster that kubectl reads, in the place of a path.
const liveCluster = "the cluster"

// defaultKubeconfig is the word for the kubeconfig that kubectl finds.
const defaultKubeconfig = "default"

// objects are what a plan needs of a cluster.
const objects = "nodes,pods,poddisruptionbudgets"

// dump returns what kubectl prints of the cluster, and its first complaint if it could not read
// everything.
func dump(ctx context.Context, opts Options) (text []byte, remark string, err error) {
	text, err = kubectl(ctx, opts, "get", objects, "-A", "-o", "json")
	var partly partlyError
	if errors.As(err, &partly) {
		return text, "kubectl could not read everything: " + partly.first, nil
	}
	return text, "", err
}

// partlyError says that kubectl failed after it had printed something.
type partlyError struct{ first string } // its first complaint

func (e partlyError) Error() string { return e.first }

// kubectl returns what kubectl prints.
func kubectl(ctx context.Context, opts Options, args ...string) ([]byte, error) {
	args = slices.Clone(args)
	if opts.Kubeconfig != defaultKubeconfig {
		args = append(args, "--kubeconfig", opts.Kubeconfig)
	}
	if opts.Context != "" {
		args = append(args, "--context", opts.Context)
	}
	var out, complaint bytes.Buffer
	cmd := exec.CommandContext(ctx, "kubectl", args...)
	cmd.Stdout, cmd.Stderr = &out, &complaint
	err := cmd.Run()
	first, _, _ := strings.Cut(strings.TrimSpace(complaint.String()), "\n")
	switch {
	case errors.Is(err, exec.ErrNotFound):
		return nil, fmt.Errorf("--kubeconfig %s: %w: install kubectl, or name a file that kubectl %s has written", opts.Kubeconfig, err, strings.Join(args, " "))
	case ctx.Err() != nil:
		return nil, context.Cause(ctx)
	case err != nil && out.Len() == 0:
		return nil, fmt.Errorf("--kubeconfig %s: kubectl %s: %s", opts.Kubeconfig, strings.Join(args, " "), cmp.Or(first, err.Error()))
	case err != nil:
		return out.Bytes(), partlyError{cmp.Or(first, err.Error())}
	}
	return out.Bytes(), nil
}

// opened is a source that can be read.
type opened struct {
	format  string
	paths   []string
	options trace.Options
	remark  string
}

// open returns how to read a source, with what it prints on standard input if it is no file.
func (s setting) open(ctx context.Context, from source) (o opened, err error) {
	o = opened{format: from.format, paths: from.paths, options: s.options(from.format)}
	switch {
	case len(from.paths) == 1 && from.paths[0] == liveCluster:
		var text []byte
		if text, o.remark, err = dump(ctx, s.opts); err != nil {
			return o, err
		}
		o.stream(bytes.NewReader(text))
	case from.format == generated:
		cluster, err := syntheticCluster(from.paths)
		if err != nil {
			return o, err
		}
		var text bytes.Buffer
		if err := cluster.WriteDump(&text); err != nil {
			return o, err
		}
		o.format, o.options = "kubectl", s.options("kubectl")
		o.stream(&text)
	}
	return o, nil
}

// stream makes r what is read.
func (o *opened) stream(r io.Reader) { o.paths, o.options.Stdin = []string{"-"}, r }

// eksNodes begins the path of a generated cluster.
const eksNodes = "eks="

func syntheticCluster(paths []string) (c trace.SyntheticCluster, err error) {
	nodes, seed, _ := strings.Cut(strings.TrimPrefix(paths[0], eksNodes), ",")
	n, err := strconv.Atoi(nodes)
	first, errSeed := strconv.ParseUint(cmp.Or(seed, "1"), 10, 64)
	if err != nil || errSeed != nil || n < 3 || n > 10_000 || len(paths) > 1 {
		return c, usage.Errorf("--trace %s:%s: want one eks=NODES or eks=NODES,SEED with 3 to 10000 nodes, such as eks=50", generated, strings.Join(paths, " "))
	}
	return trace.SyntheticCluster{Seed: first, Nodes: n}, nil
}
