package bench

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"unnest/internal/cni/timer"
	"unnest/internal/measure/experiment"
	"unnest/internal/measure/stack"
	"unnest/internal/measure/workload"
	"unnest/internal/testbed/guest"
	"unnest/internal/testbed/lab"
	"unnest/internal/testbed/place"
)

// Execute starts one container, or runs one plugin alone, and removes it.
func (s *Startup) Execute(ctx context.Context, e experiment.Execution) (experiment.Outcome, error) {
	ctx, done := whileAlive(ctx, s.guest)
	defer done()
	run := s.start
	if e.Case.Name == addCase {
		run = s.plugin
	}
	values, err := run(ctx, e.Configuration)
	if err != nil {
		return experiment.Outcome{}, s.guest.explain(err)
	}
	return experiment.Outcome{Values: values, Boot: s.guest.boot}, nil
}

// start starts a container and waits for its message.
func (s *Startup) start(ctx context.Context, c stack.Configuration) (_ []workload.Value, err error) {
	name := fresh()
	args := append([]string{engine, "--cni-path", timedPlugins, "run", "--detach", "--name", name}, networkArgs(c.Network, startPorts)...)
	args = append(args, guest.ContainerImage,
		"/bin/busybox", "nc", lab.TenantGateway, strconv.Itoa(inboxPort), "-e", "/bin/busybox", "echo", name)
	defer func() {
		if err != nil { // what was not removed in its time
			err = errors.Join(err, s.remove(context.WithoutCancel(ctx), name))
		}
	}()
	var id bytes.Buffer
	ordered := time.Now()
	order, err := s.guest.place.Start(ctx, place.Command{Args: args, Stdout: &id})
	if err != nil {
		return nil, err
	}
	if err := order.Wait(); err != nil {
		return nil, err
	}
	arrived, err := s.inbox.await(ctx, name)
	if err != nil {
		return nil, err
	}
	if err := s.remove(ctx, name); err != nil {
		return nil, err
	}
	times, err := s.pluginTimes(ctx, strings.TrimSpace(id.String()))
	return append(times, workload.Value{Metric: "start", Value: arrived.Sub(ordered).Seconds()}), err
}

// startPorts is what a container behind NAT publishes, as one that serves does.
var startPorts = []workload.Port{{Protocol: workload.TCP, Number: 8080}}

// fresh returns a name that no container had before.
func fresh() string { return "start-" + strings.ToLower(rand.Text()[:12]) }

// removeLimit is how long a container may take to go.
const removeLimit = 30 * time.Second

// remove removes a container, if there is one.
func (s *Startup) remove(ctx context.Context, name string) error {
	ctx, cancel := context.WithTimeout(ctx, removeLimit)
	defer cancel()
	err := place.Run(ctx, s.guest.place, engine, "rm", "--force", name)
	var exit *place.ExitError
	if errors.As(err, &exit) && strings.Contains(exit.Stderr, "no such container") {
		return nil
	}
	return err
}

// pluginAlone gives the network namespace $1 a network by the plugin $2 of the
// configuration $3, and takes it away again.
const pluginAlone = `set -e
ip netns add "$1"
trap 'ip netns delete "$1"' EXIT
export CNI_CONTAINERID="$1" CNI_NETNS="/run/netns/$1" CNI_IFNAME=eth0 CNI_PATH="${2%/*}"
for command in ADD DEL; do
	answer=$(CNI_COMMAND=$command "$2" <"$3") || { echo "$command: $answer" >&2; exit 1; }
done`

// plugin runs the plugin of a network alone.
func (s *Startup) plugin(ctx context.Context, c stack.Configuration) ([]workload.Value, error) {
	program := "brfusion"
	if c.Network == stack.NAT {
		program = "bridge"
	}
	name := fresh()
	err := place.Run(ctx, s.guest.place, "sh", "-c", pluginAlone, "sh", name, timedPlugins+"/"+program, pluginConfig(c.Network))
	if err != nil {
		return nil, err
	}
	return s.pluginTimes(ctx, name)
}

// pluginTimes returns how long the plugins took for a container, which is gone
// by now: all ADDs together, and all DELs.
func (s *Startup) pluginTimes(ctx context.Context, container string) ([]workload.Value, error) {
	journal, err := place.Output(ctx, s.guest.place, "sh", "-c", `cat "$1" && : >"$1"`, "sh", timer.Journal)
	if err != nil {
		return nil, err
	}
	return sumRuns(journal, container)
}

// sumRuns adds up the journal's lines of one container. A runtime may put words
// of its own before the container's ID.
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
