package machine

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"

	"unnest.io/unnest/internal/measure/result"
	"unnest.io/unnest/internal/testbed/place"
)

// Describe describes the machine that p is in, and returns the ID of its
// kernel's boot.
func Describe(ctx context.Context, p place.Place, name string) (result.Machine, string, error) {
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
	m, _, err := Describe(ctx, place.Local{}, name)
	return m, err
}
