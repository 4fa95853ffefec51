// Package startup is the study of the start of containers, one at a time, and of the CNI plugins alone.
package startup

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"unnest.io/unnest/internal/measure/experiment"
	"unnest.io/unnest/internal/measure/machines"
	"unnest.io/unnest/internal/measure/machines/guestimage"
	"unnest.io/unnest/internal/measure/stack"
	"unnest.io/unnest/internal/testbed/lab"
	"unnest.io/unnest/internal/testbed/place"
)

// poolSize is the number of NICs that are plugged in advance for the configuration
// that takes its NIC from the pool. Containers start one after another, so one NIC
// would do if it came back at once.
const poolSize = 2

// Study is the study of the start of containers, one at a time, and of the CNI
// plugins alone. On the host, an inbox receives the containers' messages.
type Study struct {
	*machines.Set
	inbox *inbox
}

// Check returns an error unless the study can measure the configuration.
func (s *Study) Check(c stack.Configuration) error {
	isAdd := func(c experiment.Case) bool { return c.Probe == experiment.Add }
	switch stacks := []string{"vm/containerd", "vm/docker"}; {
	case !slices.Contains(stacks, c.Stack.String()) || c.Architecture() != stack.X8664:
		return errors.New("containers are started in guests only: use stack vm/containerd or vm/docker and arch " + string(stack.X8664))
	case c.Stack.String() == stacks[1] && slices.ContainsFunc(s.Spec.Cases, isAdd):
		return errors.New("stack vm/docker has no CNI plugin to time: leave out cases with probe " + string(experiment.Add))
	case c.Network != stack.NAT && c.Network != stack.DockerBridge && !c.Network.Reached():
		return errors.New("want network nat, docker-bridge, brfusion, brfusion-cold or brfusion-trunk")
	}
	return nil
}

// Needs says what has to be up before Begin.
func (s *Study) Needs() machines.Needs {
	return machines.Needs{Machines: true, Daemon: true, Pool: poolSize, Slots: machines.Slots}
}

// Begin prepares the study, when the machines are up.
func (s *Study) Begin(ctx context.Context) error {
	if err := s.FindEngine(ctx); err != nil {
		return err
	}
	return lab.Do(s.Lab.HostNS(), func() (err error) {
		s.inbox, err = openInbox(net.JoinHostPort(lab.TenantGateway, strconv.Itoa(inboxPort)))
		return err
	})
}

// inboxPort receives the containers' messages.
const inboxPort = 7000

// timedPlugins is the guest's directory of links to the timer, which have the plugins' names.
const timedPlugins = "/run/unnest/timed"

// pluginConfig is the guest's file with the plugin's configuration for a network.
func pluginConfig(n stack.Network) string { return "/run/unnest/plugin-" + string(n) + ".json" }

// Start makes the links to the timer, and the configuration of the plugin alone; for Docker, its network.
func (s *Study) Start(ctx context.Context, c stack.Configuration) error {
	m := s.Of(c).Servers()
	if m.Runs == stack.Docker {
		return s.Of(c).MakeNetworks(ctx, c, "")
	}
	return m.Explain(s.timePlugins(ctx, m.Place, c.Network))
}

func (s *Study) timePlugins(ctx context.Context, in place.Place, n stack.Network) error {
	const links = `set -e
mkdir -p "$2"
for plugin in bridge portmap firewall tuning brfusion; do ln -sf "$1" "$2/$plugin"; done
# The real plugins call host-local, within their own time.
ln -sf /usr/lib/cni/host-local "$2/host-local"
dpkg-query --show --showformat '${Version}' containernetworking-plugins`
	version, err := place.Output(ctx, in, "sh", "-c", links, "sh", guestimage.CNITimer, timedPlugins)
	if err != nil {
		return err
	}
	s.FoundTool("containernetworking-plugins", string(version))
	content := []byte(bridgeConfig)
	if n != stack.NAT {
		list, err := place.Output(ctx, in, "sh", "-c", `cat /etc/cni/net.d/*-"$1".conflist`, "sh", string(n))
		if err != nil {
			return err
		}
		if content, err = firstPlugin(list); err != nil {
			return err
		}
	}
	return in.Put(ctx, pluginConfig(n), 0o644, strings.NewReader(string(content)))
}

// bridgeConfig configures the standard bridge plugin as the engine's default network
// does, without the plugins that follow it there.
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
	delete(p, "capabilities") // meant for the runtime only
	return json.Marshal(p)
}

// Down closes the inbox and takes the machines down.
func (s *Study) Down() error {
	var err error
	if s.inbox != nil {
		err = s.inbox.close()
	}
	return errors.Join(err, s.Set.Down())
}

// inbox receives the messages of containers, one per connection.
type inbox struct {
	listener net.Listener
	messages chan message
}

type message struct {
	text    string
	arrived time.Time // of its first byte
}

// The limits of messages.
const (
	messageSize    = 256 // bytes
	messageTimeout = 10 * time.Second
	maxMessages    = 16 // that nobody waits for
)

// openInbox listens on address in the network namespace of the calling thread.
func openInbox(address string) (*inbox, error) {
	l, err := net.Listen("tcp", address)
	if err != nil {
		return nil, fmt.Errorf("listen for containers' messages: %w", err)
	}
	i := &inbox{l, make(chan message, maxMessages)}
	go i.serve()
	return i, nil
}

func (i *inbox) serve() {
	for {
		conn, err := i.listener.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err == nil {
			go i.receive(conn)
		}
	}
}

// receive reads one message. It drops one that does not fit into the channel.
func (i *inbox) receive(conn net.Conn) {
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(messageTimeout))
	first := make([]byte, messageSize)
	n, err := conn.Read(first)
	arrived := time.Now()
	if err != nil {
		return
	}
	rest, _ := io.ReadAll(io.LimitReader(conn, messageSize))
	select {
	case i.messages <- message{strings.TrimSpace(string(first[:n]) + string(rest)), arrived}:
	default:
	}
}

// await returns the arrival time of the message text. It drops others, of containers
// that were given up.
func (i *inbox) await(ctx context.Context, text string) (time.Time, error) {
	for {
		select {
		case m := <-i.messages:
			if m.text == text {
				return m.arrived, nil
			}
		case <-ctx.Done():
			return time.Time{}, fmt.Errorf("wait for the message of container %s: %w", text, context.Cause(ctx))
		}
	}
}

func (i *inbox) close() error { return i.listener.Close() }
