package bench

import (
	"context"
	"fmt"
	"os"
	"regexp"
	"runtime"
	"strconv"
	"strings"

	"unnest/internal/experiment"
	"unnest/internal/place"
	"unnest/internal/result"
)

// describe notes what the run is made with: the guest as it is, and the
// versions of every tool on both sides.
func (b *Bench) describe(ctx context.Context, spec *experiment.Spec) error {
	for _, c := range spec.Cases {
		w := lookup(c)
		if b.facts.Tools[w.Tool()] != "" {
			continue
		}
		out, err := place.Output(ctx, place.Local{}, w.VersionArgs()...)
		if err != nil {
			return fmt.Errorf("find the version of %s: %w: install it by `apt-get install %s`", w.Tool(), err, w.Tool())
		}
		if b.facts.Tools[w.Tool()], err = w.ParseVersion(out); err != nil {
			return err
		}
	}
	return b.describeGuest(ctx)
}

// describeGuest notes the guest as it is, and the versions of what runs it and
// its containers.
func (b *Bench) describeGuest(ctx context.Context) error {
	m, boot, err := machine(ctx, b.ssh, node)
	if err != nil {
		return b.explain(err)
	}
	b.bootID, b.facts.Guests = boot, []result.Machine{m}
	return b.findVersions(ctx)
}

var versionNumber = regexp.MustCompile(`\d+\.\d+[^\s,]*`)

// findVersions notes the first number that each program prints of itself.
func (b *Bench) findVersions(ctx context.Context) error {
	for _, v := range []struct {
		place place.Place
		args  []string
	}{
		{place.Local{}, []string{"qemu-system-x86_64", "--version"}},
		{b.ssh, []string{"containerd", "--version"}},
		{b.ssh, []string{"runc", "--version"}},
		{b.ssh, []string{engine, "--version"}},
	} {
		out, err := place.Output(ctx, v.place, v.args...)
		if err != nil {
			return b.explain(err)
		}
		b.facts.Tools[v.args[0]] = versionNumber.FindString(string(out))
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
