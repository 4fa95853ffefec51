package machine

import (
	"context"
	"fmt"
	"net"
	"regexp"
	"slices"
	"strings"

	"unnest.io/unnest/internal/measure/experiment"
	"unnest.io/unnest/internal/measure/machines/output"
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
	case stack.OverlayNetwork: // joinOverlay makes it when the container runs
		return []string{"--network", "none"}
	}
	var args []string
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
