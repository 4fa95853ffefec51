package bench

import (
	"context"
	"fmt"
	"os"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"

	"unnest/internal/measure/result"
	"unnest/internal/measure/stack"
	"unnest/internal/testbed/place"
)

// findClientTools records the versions of the clients' tools, where the clients run:
// on this host, unless all run in pods.
func (s *services) findClientTools(ctx context.Context) error {
	var p place.Place = place.Local{}
	if !slices.ContainsFunc(s.spec.Configurations, func(c stack.Configuration) bool { return c.Drive != stack.Pod }) {
		p = s.machines(s.spec.Configurations[0])[0].place
	}
	for _, c := range s.spec.Cases {
		w := lookup(c)
		if s.facts.Tools[w.Name()] != "" || isGenerator(w) {
			continue
		}
		out, err := place.Output(ctx, p, w.VersionArgs()...)
		if err != nil {
			return fmt.Errorf("find the version of %s: %w: install it by `apt-get install %s`", w.Name(), err, w.Name())
		}
		if s.facts.Tools[w.Name()], err = w.ParseVersion(out); err != nil {
			return err
		}
	}
	return nil
}

// findServers records the versions of the applications' servers and of their packages in p.
func (s *services) findServers(ctx context.Context, p place.Place) error {
	for _, c := range s.spec.Cases {
		w := lookup(c)
		if s.facts.Tools[w.Name()] != "" || len(w.Programs()) == 0 {
			continue
		}
		out, err := place.Output(ctx, p, w.VersionArgs()...)
		if err != nil {
			return fmt.Errorf("find the version of %s: %w", w.Name(), err)
		}
		if s.facts.Tools[w.Name()], err = w.ParseVersion(out); err != nil {
			return err
		}
	}
	return s.findPackages(ctx, p)
}

var versionNumber = regexp.MustCompile(`\d+\.\d+[^\s,]*`)

// findTools records the versions of the container engine, which are the same in all
// machines of the run that have it, and of QEMU.
func (b *Bench) findTools(ctx context.Context) error {
	i := slices.IndexFunc(b.spec.Configurations, func(c stack.Configuration) bool { return !c.Stack.Remote() && c.Architecture() == stack.X8664 })
	if i >= 0 {
		m := b.machines(b.spec.Configurations[i])[0]
		for _, tool := range []string{"containerd", "runc", engine} {
			if err := b.findTool(ctx, m.place, tool); err != nil {
				return m.explain(err)
			}
		}
	}
	if len(b.nodes) == 0 {
		return nil
	}
	return b.findTool(ctx, place.Local{}, qemuBinary)
}

const qemuBinary = "qemu-system-x86_64"

// findTool records the version of a tool: the first number that it prints.
func (b *Bench) findTool(ctx context.Context, p place.Place, tool string) error {
	out, err := place.Output(ctx, p, tool, "--version")
	if err != nil {
		return fmt.Errorf("find the version of %s: %w", tool, err)
	}
	b.facts.Tools[tool] = versionNumber.FindString(string(out))
	return nil
}

// describeMachine describes the machine that p is in, and returns the ID of its
// kernel's boot.
func describeMachine(ctx context.Context, p place.Place, name string) (result.Machine, string, error) {
	const script = `uname -r; uname -m; nproc; cat /proc/sys/kernel/random/boot_id; ` +
		`sed -n 's/^MemTotal: *\([0-9]*\) kB/\1/p' /proc/meminfo; sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -n 1; ` +
		`for file in /proc/sys/kernel/randomize_va_space /sys/module/kvm/parameters/halt_poll_ns; do ` +
		`sed "s/^/${file##*/} /" $file 2>/dev/null || true; done`
	out, err := place.Output(ctx, p, "sh", "-c", script)
	if err != nil {
		return result.Machine{}, "", fmt.Errorf("describe %s: %w", name, err)
	}
	lines := strings.Split(string(out), "\n")
	if len(lines) < 6 {
		return result.Machine{}, "", fmt.Errorf("describe %s: got %q", name, out)
	}
	m := result.Machine{Name: name, Kernel: lines[0], Arch: lines[1], CPU: lines[5]}
	var memory int64
	if m.VCPUs, err = strconv.Atoi(lines[2]); err == nil {
		memory, err = strconv.ParseInt(lines[4], 10, 64)
	}
	if err != nil {
		return result.Machine{}, "", fmt.Errorf("describe %s: %w", name, err)
	}
	m.Memory = memory << 10
	for _, line := range lines[6:] {
		switch name, value, _ := strings.Cut(line, " "); name {
		case "randomize_va_space":
			m.RandomAddresses = value
		case "halt_poll_ns":
			m.HaltPoll = value
		}
	}
	return m, lines[3], nil
}

// DescribeHost describes this host.
func DescribeHost(ctx context.Context) (result.Machine, error) {
	name, err := os.Hostname()
	if err != nil {
		name = runtime.GOOS
	}
	m, _, err := describeMachine(ctx, place.Local{}, name)
	return m, err
}
