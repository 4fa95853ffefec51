package machine

import (
	"context"
	"fmt"
	"net"
	"os"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"

	"unnest.io/unnest/internal/measure/experiment"
	"unnest.io/unnest/internal/measure/machines/output"
	"unnest.io/unnest/internal/measure/result"
	"unnest.io/unnest/internal/measure/stack"
	"unnest.io/unnest/internal/measure/workload"
	"unnest.io/unnest/internal/testbed/fleet"
	"unnest.io/unnest/internal/testbed/place"
)

// Nerdctl is the command line of containerd.
const Nerdctl = "nerdctl"

// Engine is the command line of the machine's container engine. Those of all engines have the options of Docker's.
func (m *Machine) Engine() string {
	if m.Runs == stack.Docker || m.Runs == stack.Podman {
		return string(m.Runs)
	}
	return Nerdctl
}

// Contain starts the container of a configuration with network options of the
// engine's run command. dir holds the files that the container keeps on a volume.
func (m *Machine) Contain(ctx context.Context, c stack.Configuration, dir string, options []string) (place.Place, error) {
	if c.Storage == stack.Volume {
		if err := place.Run(ctx, m.Place, "mkdir", "-p", dir); err != nil {
			return nil, m.Explain(err)
		}
		options = append(slices.Clone(options), "--volume", dir+":"+dir)
	}
	p, err := m.StartContainer(ctx, ContainerName(c), options...)
	return p, m.Explain(err)
}

// WithContainerEnd adds to err that a container has ended, if it has.
func WithContainerEnd(ctx context.Context, c place.Container, err error) error {
	if ended := containerEnd(ctx, c); ended != "" {
		return fmt.Errorf("%w; %w: %s", err, experiment.ErrDied, ended)
	}
	return err
}

// containerEnd says how a container ended, with the last lines of its output. It returns "" if the
// container runs, or its engine does not say.
func containerEnd(ctx context.Context, c place.Container) string {
	out, err := place.Output(ctx, c.Place, c.Engine, "inspect", "--format", "{{.State.Status}} {{.State.ExitCode}}", c.Name)
	status, code, _ := strings.Cut(strings.TrimSpace(string(out)), " ")
	if err != nil || status != "exited" {
		return ""
	}
	text := fmt.Sprintf("%s: exit code %s", c, code)
	printed, err := place.Output(ctx, c.Place, "sh", "-c", `"$1" logs --tail 5 "$2" 2>&1`, "logs", c.Engine, c.Name)
	if said := output.LastLines(string(printed)); err == nil && said != "" {
		text += ": " + said
	}
	return text
}

// notInNames matches what container engines refuse in a name.
var notInNames = regexp.MustCompile("[^a-z0-9]+")

// ContainerName is the name of a configuration's container, and of a directory.
func ContainerName(c stack.Configuration) string {
	return strings.Trim(notInNames.ReplaceAllString(strings.ToLower(c.Name), "-"), "-")
}

// ContainerOf returns the container that a place is; nil: it is none.
func ContainerOf(p place.Place) *place.Container {
	if c, ok := p.(place.Container); ok {
		return &c
	}
	return nil
}

// NetworkArgs are the options of the engine's run command for a network. NAT is the
// engine's default network with published ports.
func NetworkArgs(n stack.Network, ports []workload.Port) []string {
	switch n {
	case stack.HostNetwork:
		return []string{"--network", "host"}
	case stack.BrFusion:
		return []string{"--network", fleet.Network}
	case stack.BrFusionCold:
		return []string{"--network", fleet.ColdNetwork}
	case stack.BrFusionTrunk:
		return []string{"--network", fleet.TrunkNetwork}
	case stack.Hostlo:
		return []string{"--network", fleet.HostloNetwork}
	case stack.HostloPlain:
		return []string{"--network", fleet.HostloPlainNetwork}
	case stack.DockerOverlay:
		return []string{"--network", dockerOverlay}
	case stack.OverlayNetwork, stack.HostloNetwork: // package clientserver makes it when the container runs
		return []string{"--network", "none"}
	}
	var args []string
	if n == stack.DockerBridge {
		args = []string{"--network", string(n)}
	}
	for _, p := range ports {
		args = append(args, "--publish", fmt.Sprintf("%d:%d/%s", p.Number, p.Number, p.Protocol))
	}
	return args
}

// PodAddress returns the address of the container's own NIC.
func PodAddress(ctx context.Context, m *Machine, name string) (string, error) {
	out, err := place.Output(ctx, m.Place, m.Engine(), "inspect", "--format", "{{.NetworkSettings.IPAddress}}{{range .NetworkSettings.Networks}} {{.IPAddress}}{{end}}", name)
	if err != nil {
		return "", err
	}
	address, _, _ := strings.Cut(strings.TrimSpace(string(out)), " ")
	if net.ParseIP(address) == nil {
		return "", fmt.Errorf("find the address of container %s: %s inspect prints %q", name, m.Engine(), out)
	}
	return address, nil
}

// NICQueues returns how many pairs of queues the kernel uses of a container's own NIC, at most one for each processor.
func NICQueues(ctx context.Context, container place.Place) (int, error) {
	out, err := place.Output(ctx, container, "sh", "-c", "ls -d /sys/class/net/eth0/queues/rx-*")
	return strings.Count(string(out), "\n"), err
}

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

// Enter returns the container called name as a place whose commands start at once.
// The engine's exec command costs an emulated guest a second or more of CPU time, for
// clients while they are measured.
//
// A command runs in the namespaces and control groups of the container. It differs in
// two things from a command that the engine starts: it has no seccomp filter, and it
// keeps all of root's capabilities. This holds for the servers and the clients of every
// pod, so the cost of the filter is in no figure of a pod. Containers that are loaded
// from outside are entered by the engine, with the filter.
func Enter(ctx context.Context, m *Machine, name string) (place.Place, error) {
	const find = `pid=$("$2" inspect --format '{{.State.Pid}}' "$1") && echo "$pid" && while IFS=: read -r _ hierarchy path; do
	for root in "/sys/fs/cgroup/${hierarchy#name=}" /sys/fs/cgroup/unified; do
		[ ! -e "$root$path/cgroup.procs" ] || { echo "$root$path"; break; }
	done
done <"/proc/$pid/cgroup"`
	out, err := place.Output(ctx, m.Place, "sh", "-c", find, "find", name, m.Engine())
	if err != nil {
		return nil, fmt.Errorf("find container %s: %w", name, err)
	}
	found := strings.Fields(string(out)) // its process ID, then its control group in each hierarchy
	if len(found) < 2 || found[0] == "0" {
		err := fmt.Errorf("find container %s: its process and control groups are %q", name, out)
		return nil, WithContainerEnd(ctx, place.Container{Place: m.Place, Engine: m.Engine(), Name: name}, err)
	}
	const join = `set -e; pid=$1; shift; while [ "$1" != -- ]; do echo $$ >"$1/cgroup.procs"; shift; done; exec nsenter --all --target "$pid" "$@"`
	return place.Within{
		Place: m.Place, Enter: slices.Concat([]string{"sh", "-c", join, "enter"}, found, []string{"--"}),
		Name: fmt.Sprintf("container %s in %s", name, m.Place),
	}, nil
}
