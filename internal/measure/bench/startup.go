package bench

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"time"

	"unnest/internal/measure/experiment"
	"unnest/internal/measure/result"
	"unnest/internal/measure/stack"
	"unnest/internal/testbed/guest"
	"unnest/internal/testbed/lab"
	"unnest/internal/testbed/place"
)

// The cases of the start-up study.
const (
	startCase = "start"
	addCase   = "add"
)

// pool is how many NICs are kept plugged ahead for the configuration that takes
// them from there. Containers start one after another, so one would do if it
// came back at once.
const pool = 2

// StartupSpec is the study of the time that a container takes to start (Bacou et
// al. 2019, §5.2.4 and Fig. 8), and of the part of it that is its network's.
func StartupSpec() *experiment.Spec {
	seconds := func(names ...string) (metrics []result.Metric) {
		for _, n := range names {
			metrics = append(metrics, result.Metric{Name: n, Unit: "s", Order: result.LIB, Distribution: true})
		}
		return metrics
	}
	container := stack.Stack{stack.VM, stack.Containerd}
	return &experiment.Spec{
		Name: "startup", Title: "From the order to start a container to its first message", Suite: "startup",
		Description: "A container is ordered in a running guest, and its only process sends a message over TCP to the host. " +
			"start is the time between the two, on the host's clock; add and del are those of the CNI plugins that make and " +
			"remove the container's network, on the guest's. The containers start one after another, each removed before the " +
			"next, so that the pool of NICs refills in between, which no time shows. NAT is the engine's default network with a " +
			"published port; BrFusion takes the NIC out of the pool, BrFusion-cold has it plugged on demand, BrFusion-trunk " +
			"makes a VLAN. In the second case there is no container: the CNI plugin alone makes the network of an empty " +
			"namespace, for NAT the standard bridge plugin by itself. After Bacou et al., Nested Virtualization Without the " +
			"Nest, ICPP 2019, Figure 8.",
		Baselines: []string{"NAT"},
		Guest:     experiment.Guest{VCPUs: 1, Memory: 1 << 30},
		Configurations: []stack.Configuration{
			{Name: "NAT", Stack: container, Network: stack.NAT},
			{Name: "BrFusion", Stack: container, Network: stack.BrFusion},
			{Name: "BrFusion-cold", Stack: container, Network: stack.BrFusionCold},
			{Name: "BrFusion-trunk", Stack: container, Network: stack.BrFusionTrunk},
		},
		Cases: []experiment.Case{
			{
				Case: result.Case{
					Suite: "startup", Name: startCase, Group: startCase, Title: "Start of a container", Tool: engine,
					Primary: "start", Metrics: seconds("start", "add", "del"),
				},
				Wall: 6 * time.Second, Timeout: time.Minute,
			},
			{
				Case: result.Case{
					Suite: "startup", Name: addCase, Group: addCase, Title: "CNI plugin alone", Tool: "cni",
					Primary: "add", Metrics: seconds("add", "del"),
				},
				Wall: 2 * time.Second, Timeout: time.Minute,
			},
		},
		Repetitions: 100, Warmup: 1, Retries: 1,
	}
}

// Startup starts containers in a guest, one at a time, as an experiment.
type Startup struct {
	bench *Bench
	guest *system
	inbox *inbox
}

// UpStartup brings the start-up study up: one guest with its container engine,
// and on the host a listener for what the containers send.
func UpStartup(ctx context.Context, spec *experiment.Spec, o Options) (_ Running, err error) {
	phase := phases(o.Progress, 4)
	phase("make the guest image")
	image, err := BuildImage(ctx, o.Programs, o.Progress.Phase)
	if err != nil {
		return nil, err
	}
	s := &Startup{bench: emptyBench(image)}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.Down())
		}
	}()
	if err := s.up(ctx, spec, o, image, phase); err != nil {
		return nil, err
	}
	return s, nil
}

func (s *Startup) up(ctx context.Context, spec *experiment.Spec, o Options, image guest.Image, phase func(string)) error {
	b := s.bench
	phase("boot the guest")
	if err := b.boot(ctx, spec, image, o, pool); err != nil {
		return err
	}
	all, err := b.machines(spec, spec.Configurations[0])
	if err != nil {
		return err
	}
	s.guest = all.servers()
	ctx, done := whileAlive(ctx, s.guest)
	defer done()
	phase("start containerd in the guest")
	if err := b.startEngines(ctx, spec); err != nil {
		return err
	}
	if err := b.describeSystems(ctx, spec); err != nil {
		return err
	}
	phase("prepare the networks")
	if err := s.timePlugins(ctx, spec); err != nil {
		return s.guest.explain(err)
	}
	return lab.Do(b.lab.HostNS(), func() (err error) {
		s.inbox, err = openInbox(net.JoinHostPort(lab.TenantGateway, strconv.Itoa(inboxPort)))
		return err
	})
}

// inboxPort is where the containers' messages go.
const inboxPort = 7000

// Where the guest keeps what times the plugins: the program that stands in for
// them, the directory of links to it, and the configurations of the second case.
const (
	cniTimer     = "/usr/lib/unnest/cni-timer"
	timedPlugins = "/run/unnest/timed"
)

// pluginConfig is the guest's file with the plugin's configuration for a
// network.
func pluginConfig(n stack.Network) string { return "/run/unnest/plugin-" + string(n) + ".json" }

// timePlugins makes a directory of stand-ins for the plugins, and the
// configurations of the plugins alone.
func (s *Startup) timePlugins(ctx context.Context, spec *experiment.Spec) error {
	const links = `set -e
mkdir -p "$2"
for plugin in bridge portmap firewall tuning brfusion; do ln -sf "$1" "$2/$plugin"; done
# Delegated to by the real plugins, in whose time it is.
ln -sf /usr/lib/cni/host-local "$2/host-local"
dpkg-query --show --showformat '${Version}' containernetworking-plugins`
	in := s.guest.place
	version, err := place.Output(ctx, in, "sh", "-c", links, "sh", cniTimer, timedPlugins)
	if err != nil {
		return err
	}
	s.bench.facts.Tools["containernetworking-plugins"] = string(version)
	for _, c := range spec.Configurations {
		content := []byte(bridgeConfig)
		if c.Network != stack.NAT {
			list, err := place.Output(ctx, in, "sh", "-c", `cat /etc/cni/net.d/*-"$1".conflist`, "sh", string(c.Network))
			if err != nil {
				return err
			}
			if content, err = firstPlugin(list); err != nil {
				return err
			}
		}
		if err := in.Put(ctx, pluginConfig(c.Network), 0o644, strings.NewReader(string(content))); err != nil {
			return err
		}
	}
	return nil
}

// bridgeConfig is the standard bridge plugin as the engine's default network
// has it, without the plugins that follow it there.
const bridgeConfig = `{
  "cniVersion": "1.0.0", "name": "bridge-alone", "type": "bridge", "bridge": "alone0",
  "isGateway": true, "ipMasq": true, "hairpinMode": true,
  "ipam": {"type": "host-local", "routes": [{"dst": "0.0.0.0/0"}], "ranges": [[{"subnet": "10.203.0.0/16"}]]}
}`

// firstPlugin returns the configuration that a runtime would give the first
// plugin of a network configuration list (CNI 1.0.0, section 3).
func firstPlugin(list []byte) ([]byte, error) {
	var l struct {
		CNIVersion string
		Name       string
		Plugins    []map[string]any
	}
	if err := json.Unmarshal(list, &l); err != nil {
		return nil, fmt.Errorf("read network configuration list: %w", err)
	}
	if len(l.Plugins) == 0 {
		return nil, fmt.Errorf("network configuration list %q has no plugin", l.Name)
	}
	p := l.Plugins[0]
	p["cniVersion"], p["name"] = l.CNIVersion, l.Name
	delete(p, "capabilities") // said to the runtime
	return json.Marshal(p)
}

// Facts says where and with what the study is made.
func (s *Startup) Facts() Facts { return s.bench.Facts() }

// Down takes the listener, the guest and the lab down.
func (s *Startup) Down() error {
	var err error
	if s.inbox != nil {
		err = s.inbox.close()
	}
	return errors.Join(err, s.bench.Down())
}
