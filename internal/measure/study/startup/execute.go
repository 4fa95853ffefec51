package startup

import (
	"bytes"
	"context"
	"crypto/rand"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"unnest.io/unnest/internal/measure/experiment"
	"unnest.io/unnest/internal/measure/machines/machine"
	"unnest.io/unnest/internal/measure/stack"
	"unnest.io/unnest/internal/measure/study/startup/timer"
	"unnest.io/unnest/internal/measure/workload"
	"unnest.io/unnest/internal/testbed/image"
	"unnest.io/unnest/internal/testbed/lab"
	"unnest.io/unnest/internal/testbed/place"
)

// Execute starts one container, or runs one plugin alone, and removes it.
func (s *Study) Execute(ctx context.Context, e experiment.Execution) (experiment.Outcome, error) {
	m := s.Of(e.Configuration).Servers()
	ctx, done := machine.WhileAlive(ctx, m)
	defer done()
	var values []workload.Value
	var err error
	if e.Case.Probe == experiment.Add {
		values, err = runPlugin(ctx, m.Place, e.Configuration.Network)
	} else {
		values, err = s.startContainer(ctx, m, e.Configuration.Network)
	}
	if err != nil {
		return experiment.Outcome{}, m.Explain(err)
	}
	return experiment.Outcome{Values: values, Boot: m.Boot}, nil
}

// startContainer starts a container and waits for its message. Docker has no plugins to time.
func (s *Study) startContainer(ctx context.Context, m *machine.Machine, n stack.Network) (_ []workload.Value, err error) {
	c := place.Container{Place: m.Place, Engine: m.Engine(), Name: newName()}
	args := []string{c.Engine}
	if c.Engine == machine.Nerdctl {
		args = append(args, "--cni-path", timedPlugins)
	}
	args = append(append(args, "run", "--detach", "--name", c.Name), machine.NetworkArgs(n, startPorts)...)
	args = append(args, image.ContainerImage,
		"/bin/busybox", "nc", lab.TenantGateway, strconv.Itoa(inboxPort), "-e", "/bin/busybox", "echo", c.Name)
	defer func() {
		if err != nil {
			err = errors.Join(err, removeContainer(context.WithoutCancel(ctx), c))
		}
	}()
	var id bytes.Buffer
	ordered := time.Now()
	process, err := c.Place.Start(ctx, place.Command{Args: args, Stdout: &id})
	if err != nil {
		return nil, err
	}
	if err := process.Wait(); err != nil {
		return nil, err
	}
	arrived, err := s.inbox.await(ctx, c.Name)
	if err != nil {
		return nil, silentContainer(ctx, c, err)
	}
	if err := removeContainer(ctx, c); err != nil {
		return nil, err
	}
	values := []workload.Value{{Metric: "start", Value: arrived.Sub(ordered).Seconds()}}
	if c.Engine != machine.Nerdctl {
		return values, nil
	}
	times, err := pluginTimes(ctx, m.Place, strings.TrimSpace(id.String()))
	return append(times, values...), err
}

// silentContainer adds to err that a container, from which no message came, has ended.
func silentContainer(ctx context.Context, c place.Container, err error) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), removeLimit)
	defer cancel()
	return machine.WithContainerEnd(ctx, c, err)
}

// startPorts are published by a container behind NAT, as by one that runs a server.
var startPorts = []workload.Port{{Protocol: workload.TCP, Number: 8080}}

// newName returns a name that no container had before.
func newName() string { return "start-" + strings.ToLower(rand.Text()[:12]) }

// removeLimit is the time limit of the removal of a container.
const removeLimit = 30 * time.Second

func removeContainer(ctx context.Context, c place.Container) error {
	ctx, cancel := context.WithTimeout(ctx, removeLimit)
	defer cancel()
	err := place.Run(ctx, c.Place, c.Engine, "rm", "--force", c.Name)
	var exit *place.ExitError
	if errors.As(err, &exit) && strings.Contains(strings.ToLower(exit.Stderr), "no such container") {
		return nil
	}
	return err
}

// pluginAlone adds the network of plugin $2 with configuration $3 to the network
// namespace $1, and deletes it again.
//
//go:embed plugin.sh
var pluginAlone string

func runPlugin(ctx context.Context, in place.Place, n stack.Network) ([]workload.Value, error) {
	plugin := "brfusion"
	if n == stack.NAT {
		plugin = "bridge"
	}
	name := newName()
	if err := place.Run(ctx, in, "sh", "-c", pluginAlone, "sh", name, timedPlugins+"/"+plugin, pluginConfig(n)); err != nil {
		return nil, err
	}
	return pluginTimes(ctx, in, name)
}

// pluginTimes returns the times of the plugins for a container that has been removed:
// the sum of all ADDs, and that of all DELs.
func pluginTimes(ctx context.Context, in place.Place, container string) ([]workload.Value, error) {
	journal, err := place.Output(ctx, in, "sh", "-c", `cat "$1" && : >"$1"`, "sh", timer.Journal)
	if err != nil {
		return nil, err
	}
	return sumRuns(journal, container)
}

// sumRuns adds up the journal's lines of one container. A runtime may add a prefix to
// the container's ID.
func sumRuns(journal []byte, container string) ([]workload.Value, error) {
	var add, del time.Duration
	lines := json.NewDecoder(bytes.NewReader(journal))
	for {
		var r timer.Run
		if err := lines.Decode(&r); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return nil, fmt.Errorf("read the times of the CNI plugins: %w", err)
		}
		if container == "" || !strings.HasSuffix(r.Container, container) {
			continue
		}
		if r.Exit != 0 {
			return nil, fmt.Errorf("CNI plugin %s ended its %s with exit code %d", r.Plugin, r.Command, r.Exit)
		}
		switch r.Command {
		case "ADD":
			add += time.Duration(r.Duration)
		case "DEL":
			del += time.Duration(r.Duration)
		}
	}
	if add == 0 || del == 0 {
		return nil, fmt.Errorf("CNI plugins were not timed: no ADD and DEL of container %q in %q", container, journal)
	}
	return []workload.Value{{Metric: "add", Value: add.Seconds()}, {Metric: "del", Value: del.Seconds()}}, nil
}
