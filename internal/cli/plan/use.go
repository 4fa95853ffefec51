package plan

import (
	"bytes"
	"context"
	"fmt"
	"iter"
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
func (c *command) readUse(ctx context.Context, all iter.Seq[cluster.User], p *progress) (iter.Seq[cluster.User], int, error) {
	if len(c.uses) == 0 {
		return all, 0, nil
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
	users := slices.Collect(all)
	var pods []cluster.Pod
	for _, u := range users {
		pods = append(pods, u.Pods...)
	}
	sizing := use.New(&u, pods, c.opts.Headroom)
	if sizing.Known == 0 {
		return nil, 0, fmt.Errorf("--use %s: none of the %d containers has a use in it: name metrics of this cluster", c.uses[0], sizing.Containers)
	}
	c.setting.Sizing = sizing
	return slices.Values(users), u.Samples(), nil
}

// sourcesOfUse returns the names of the sources.
func (c *command) sourcesOfUse() (names []string) {
	for _, from := range c.uses {
		names = append(names, from.String())
	}
	return names
}
