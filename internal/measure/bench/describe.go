package bench

import (
	"context"
	"fmt"
	"os"
	"regexp"
	"runtime"
	"strconv"
	"strings"

	"unnest/internal/measure/experiment"
	"unnest/internal/measure/result"
	"unnest/internal/measure/stack"
	"unnest/internal/testbed/place"
)

// describe notes what the run is made with: the machines as they are, and the
// versions of every tool on both sides.
func (b *Bench) describe(ctx context.Context, spec *experiment.Spec) error {
	clients, err := b.clientPlace(spec)
	if err != nil {
		return err
	}
	for _, c := range spec.Cases {
		w := lookup(c)
		if b.facts.Tools[w.Tool()] != "" {
			continue
		}
		out, err := place.Output(ctx, clients, w.VersionArgs()...)
		if err != nil {
			return fmt.Errorf("find the version of %s: %w: install it by `apt-get install %s`", w.Tool(), err, w.Tool())
		}
		if b.facts.Tools[w.Tool()], err = w.ParseVersion(out); err != nil {
			return err
		}
	}
	return b.describeSystems(ctx, spec)
}

// clientPlace is where the tools are that clients run: this host, unless all are in
// their pods.
func (b *Bench) clientPlace(spec *experiment.Spec) (place.Place, error) {
	for _, c := range spec.Configurations {
		if c.Drive != stack.Pod {
			return place.Local{}, nil
		}
	}
	all, err := b.machines(spec, spec.Configurations[0])
	if err != nil {
		return nil, err
	}
	return all[0].place, nil
}

// describeSystems notes the guests as they are, and the versions of what runs them
// and their containers, which are the same in all of them and on this host.
func (b *Bench) describeSystems(ctx context.Context, spec *experiment.Spec) error {
	guests := 0
	for _, c := range spec.Configurations {
		all, err := b.machines(spec, c)
		if err != nil {
			return err
		}
		for _, s := range all {
			switch {
			case s.boot != "":
			case c.Level() == 0: // described as the host of the run
				err = s.describe(ctx, "metal")
			default:
				guests++
				err = s.describe(ctx, nodeName(guests))
				b.facts.Guests = append(b.facts.Guests, s.facts)
			}
			if err != nil {
				return err
			}
		}
	}
	all, err := b.machines(spec, spec.Configurations[0])
	if err != nil {
		return err
	}
	return b.findVersions(ctx, all[0], guests > 0)
}

var versionNumber = regexp.MustCompile(`\d+\.\d+[^\s,]*`)

// findVersions notes the first number that each program prints of itself.
func (b *Bench) findVersions(ctx context.Context, s *system, guests bool) error {
	programs := []struct {
		place place.Place
		args  []string
	}{
		{s.place, []string{"containerd", "--version"}},
		{s.place, []string{"runc", "--version"}},
		{s.place, []string{engine, "--version"}},
	}
	if guests {
		programs = append(programs, struct {
			place place.Place
			args  []string
		}{place.Local{}, []string{"qemu-system-x86_64", "--version"}})
	}
	for _, p := range programs {
		out, err := place.Output(ctx, p.place, p.args...)
		if err != nil {
			return s.explain(err)
		}
		b.facts.Tools[p.args[0]] = versionNumber.FindString(string(out))
	}
	return nil
}

// machine describes the machine of a place and returns its kernel's boot id.
func machine(ctx context.Context, p place.Place, name string) (result.Machine, string, error) {
	const script = `uname -r; uname -m; nproc; cat /proc/sys/kernel/random/boot_id; ` +
		`sed -n 's/^MemTotal: *\([0-9]*\) kB/\1/p' /proc/meminfo; sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -n 1`
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
	return m, lines[3], nil
}

// Host describes this machine.
func Host(ctx context.Context) (result.Machine, error) {
	name, err := os.Hostname()
	if err != nil {
		name = runtime.GOOS
	}
	m, _, err := machine(ctx, place.Local{}, name)
	return m, err
}
