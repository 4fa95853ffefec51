package plan

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"os/exec"
	"regexp"
	"slices"
	"strings"

	"unnest.io/unnest/internal/cli/usage"
	"unnest.io/unnest/internal/plan/cluster"
	"unnest.io/unnest/internal/plan/trace"
	"unnest.io/unnest/internal/plan/use"
)

// useSource is a file that says what containers use. Without a path, kubectl prints it.
type useSource struct{ format, path string }

// String returns FORMAT:PATH.
func (u useSource) String() string {
	if u.path == "" {
		return u.format + ":" + liveCluster
	}
	return u.format + ":" + u.path
}

// liveUse is the arguments with which kubectl prints what containers use.
var liveUse = map[string][]string{
	"metrics": {"get", "--raw", "/apis/metrics.k8s.io/v1beta1/pods"},
	"vpa":     {"get", "verticalpodautoscalers", "-A", "-o", "json"},
}

func (c *command) takeUses() error {
	switch {
	case len(c.opts.Uses) == 0 && c.opts.Headroom != defaultHeadroom:
		return usage.Errorf("--headroom needs --use: add it")
	case c.opts.Headroom < 0 || c.opts.Headroom > 1000:
		return usage.Errorf("--headroom %d: want a percentage from 0 to 1000", c.opts.Headroom)
	}
	for _, text := range c.opts.Uses {
		format, path, _ := strings.Cut(text, ":")
		switch {
		case !slices.Contains(use.Formats, format):
			return usage.Errorf("--use %s: unknown format %q%s; the formats are %s", text, format, usage.Suggest(format, "", use.Formats), strings.Join(use.Formats, ", "))
		case path == "" && (c.opts.Kubeconfig == "" || liveUse[format] == nil):
			return usage.Errorf("--use %s: want FORMAT:PATH, such as %s:use.json", text, format)
		}
		c.uses = append(c.uses, useSource{format, path})
	}
	return nil
}

// readUse reads what containers use, adds the sizing to the setting, and returns the users and the
// fewest samples of a container.
func (c *command) readUse(ctx context.Context, in input, p *progress) (iter.Seq[cluster.User], int, error) {
	if len(c.uses) == 0 {
		return in.users, 0, nil
	}
	var u use.Use
	for _, from := range c.uses {
		p.phase("reading " + from.String())
		path, stdin := from.path, c.opts.Streams.In
		if path == "" {
			text, err := kubectl(ctx, c.opts, liveUse[from.format]...)
			if err != nil {
				return nil, 0, fmt.Errorf("--use %s: %w", from.format, err)
			}
			path, stdin = "-", bytes.NewReader(text)
		}
		if err := trace.ReadUse(ctx, from.format, path, stdin, &u); err != nil {
			return nil, 0, fmt.Errorf("--use %s: %w", from.format, err)
		}
	}
	users := slices.Collect(in.users)
	var pods []cluster.Pod
	for _, u := range users {
		pods = append(pods, u.Pods...)
	}
	sizing := use.New(&u, pods, in.pods, c.opts.Headroom)
	if sizing.Known == 0 {
		return nil, 0, fmt.Errorf("--use %s: none of the %d containers has a use in it: name metrics of this cluster", c.uses[0], sizing.Containers)
	}
	c.setting.Sizing = sizing
	return slices.Values(users), u.Samples(), nil
}

func (c *command) sourcesOfUse() (names []string) {
	for _, from := range c.uses {
		names = append(names, from.String())
	}
	return names
}

// liveCluster stands for a cluster that kubectl reads, in the place of a path.
const liveCluster = "the cluster"

// defaultKubeconfig is the word for the kubeconfig that kubectl finds.
const defaultKubeconfig = "default"

// objects are what a plan needs of a cluster.
const objects = "nodes,pods,poddisruptionbudgets,persistentvolumes,csinodes,namespaces"

// shortObjects are the same as people write them.
const shortObjects = "nodes,pods,pdb,pv,csinodes,ns"

// dump returns what kubectl prints of the cluster, and its first complaint if it may not read some kinds.
func dump(ctx context.Context, opts Options) (text []byte, remark string, err error) {
	text, err = kubectl(ctx, opts, "get", objects, "-A", "-o", "json")
	var partly partlyError
	if errors.As(err, &partly) {
		if first := partly.forbidden(); first != "" {
			return text, "kubectl could not read everything: " + first, nil
		}
	}
	return text, "", err
}

// partlyError says that kubectl failed after it had printed something.
type partlyError struct{ args, first, all string } // its first complaint, and all

func (e partlyError) Error() string {
	return fmt.Sprintf("kubectl %s could not read everything: %s", e.args, e.first)
}

// warning is a line of kubectl that is no complaint about an object: of the API server, or of its log.
var warning = regexp.MustCompile(`^(Warning: |[IWEF]\d{4} )`)

// forbidden returns the first complaint if kubectl only complains that it may not read kinds without which a plan is more careful, else "".
func (e partlyError) forbidden() (first string) {
	for line := range strings.Lines(e.all) {
		kind, ok := strings.CutPrefix(line, "Error from server (Forbidden): ")
		switch {
		case warning.MatchString(line):
			continue
		case !ok || strings.HasPrefix(kind, "nodes ") || strings.HasPrefix(kind, "pods "):
			return ""
		}
		first = cmp.Or(first, strings.TrimSpace(line))
	}
	return first
}

func kubectl(ctx context.Context, opts Options, args ...string) ([]byte, error) {
	args = slices.Clone(args)
	file, cluster, named := strings.Cut(opts.Kubeconfig, ",context=")
	if file != defaultKubeconfig {
		args = append(args, "--kubeconfig", file)
	}
	if named {
		args = append(args, "--context", cluster)
	}
	var out, complaint bytes.Buffer
	cmd := exec.CommandContext(ctx, "kubectl", args...)
	cmd.Stdout, cmd.Stderr = &out, &complaint
	err := cmd.Run()
	complaints := strings.TrimSpace(complaint.String())
	first, _, _ := strings.Cut(complaints, "\n")
	switch {
	case errors.Is(err, exec.ErrNotFound):
		return nil, fmt.Errorf("--kubeconfig %s: %w: install kubectl, or name a file that kubectl %s has written", opts.Kubeconfig, err, strings.Join(args, " "))
	case ctx.Err() != nil:
		return nil, context.Cause(ctx)
	case err != nil && out.Len() == 0:
		return nil, fmt.Errorf("--kubeconfig %s: kubectl %s: %s", opts.Kubeconfig, strings.Join(args, " "), cmp.Or(first, err.Error()))
	case err != nil:
		return out.Bytes(), partlyError{strings.Join(args, " "), cmp.Or(first, err.Error()), complaints}
	}
	return out.Bytes(), nil
}
