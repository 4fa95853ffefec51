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

// OfEachRelease returns one configuration for each architecture, release of Debian and engine of the machines that this
// run boots, and of this host.
func (b *Set) OfEachRelease() (all []stack.Configuration) {
	type packages struct {
		architecture stack.Arch
		release      stack.Release
		engine       stack.Layer
	}
	var seen []packages
	for _, c := range b.Spec.Configurations {
		of := packages{architecture: c.Architecture(), release: c.Release}
		if engine, _ := c.Stack.Engine(); engine == stack.Docker || engine == stack.Podman {
			of.engine = engine // all other machines have containerd
		}
		if !c.Stack.Remote() && !slices.Contains(seen, of) {
			seen, all = append(seen, of), append(all, c)
		}
	}
	return all
}

// FindEngine records the versions of QEMU and of the container engines. Machines of one release of
// Debian have the same versions.
func (b *Set) FindEngine(ctx context.Context) error {
	for _, c := range b.OfEachRelease() {
		if c.Architecture() != stack.X8664 {
			continue
		}
		m := b.Of(c)[0]
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
	version := VersionNumber.FindString(string(out))
	if version == "" {
		return fmt.Errorf("find the version of %s on %s: its output has no version number: %q", tool, p, out)
	}
	b.FoundTool(tool, version)
	return nil
}

// FindPackages records the versions of the tools' packages. Our machines and containers of one
// release of Debian have the same versions.
func (b *Set) FindPackages(ctx context.Context, p place.Place) error {
	names := guestimage.Packages(b.Spec)
	if len(names) == 0 {
		return nil
	}
	out, err := place.Output(ctx, p, append([]string{"dpkg-query", "--show", "--showformat", "${Package} ${Version}\n"}, names...)...)
	for line := range strings.Lines(string(out)) {
		if name, version, ok := strings.Cut(strings.TrimSpace(line), " "); ok {
			b.FoundTool(name, version)
		}
	}
	return err
}

// FindVersion records the version of a workload's program in p.
func (b *Set) FindVersion(ctx context.Context, p place.Place, w workload.Workload) error {
	out, err := place.Output(ctx, p, w.VersionArgs()...)
	if err != nil {
		return fmt.Errorf("find the version of %s: %w", w.Name(), err)
	}
	version, err := w.ParseVersion(out)
	if err != nil {
		return fmt.Errorf("find the version of %s: %w", w.Name(), err)
	}
	b.FoundTool(w.Name(), version)
	return nil
}
