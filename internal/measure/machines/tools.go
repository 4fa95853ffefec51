package machines

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"unnest.io/unnest/internal/measure/machines/guestimage"
	"unnest.io/unnest/internal/measure/machines/machine"
	"unnest.io/unnest/internal/measure/stack"
	"unnest.io/unnest/internal/measure/workload"
	"unnest.io/unnest/internal/testbed/place"
)

// VersionNumber matches the first number of a version that a tool prints.
var VersionNumber = regexp.MustCompile(`\d+\.\d+[^\s,]*`)

// FindEngine records the versions of the container engine, which are the same in all
// machines of the run that have it, and of QEMU.
func (b *Set) FindEngine(ctx context.Context) error {
	i := slices.IndexFunc(b.Spec.Configurations, func(c stack.Configuration) bool { return !c.Stack.Remote() && c.Architecture() == stack.X8664 })
	if i >= 0 {
		m := b.Of(b.Spec.Configurations[i])[0]
		tools := map[string][]string{machine.Nerdctl: {"containerd", "runc"}, "docker": {"containerd", "runc"}, "podman": {"runc"}}[m.Engine()]
		for _, tool := range append(tools, m.Engine()) {
			if err := b.FindTool(ctx, m.Place, tool); err != nil {
				return m.Explain(err)
			}
		}
	}
	if len(b.nodes) == 0 {
		return nil
	}
	return b.FindTool(ctx, place.Local{}, QEMU)
}

// QEMU is the program whose version a run records.
const QEMU = "qemu-system-x86_64"

// FindTool records the version of a tool: the first number that it prints.
func (b *Set) FindTool(ctx context.Context, p place.Place, tool string) error {
	out, err := place.Output(ctx, p, tool, "--version")
	if err != nil {
		return fmt.Errorf("find the version of %s: %w", tool, err)
	}
	b.facts.Tools[tool] = VersionNumber.FindString(string(out))
	return nil
}

// FindPackages records the versions of the tools' packages, which are the same in all
// our machines and containers.
func (b *Set) FindPackages(ctx context.Context, p place.Place) error {
	names := guestimage.Packages(b.Spec)
	if len(names) == 0 {
		return nil
	}
	out, err := place.Output(ctx, p, append([]string{"dpkg-query", "--show", "--showformat", "${Package} ${Version}\n"}, names...)...)
	for line := range strings.Lines(string(out)) {
		if name, version, ok := strings.Cut(strings.TrimSpace(line), " "); ok {
			b.facts.Tools[name] = version
		}
	}
	return err
}

// FindVersion records the version of a workload's program in p, once.
func (b *Set) FindVersion(ctx context.Context, p place.Place, w workload.Workload) error {
	if b.facts.Tools[w.Name()] != "" {
		return nil
	}
	out, err := place.Output(ctx, p, w.VersionArgs()...)
	if err == nil {
		b.facts.Tools[w.Name()], err = w.ParseVersion(out)
	}
	if err != nil {
		return fmt.Errorf("find the version of %s: %w", w.Name(), err)
	}
	return nil
}
