// Command cniplugins checks CNI plugins of others, and writes the page that compares them:
// docs/results/cni-plugins. Its argument is a directory, which gets the plugins, built from the
// source that the Go module proxy has, unless they are in its directory plugins. Needs root, network namespaces and bin/unnest-conformance.
// Without an argument it writes the page again.
//
// Each network configuration list is checked in a network namespace and a mount namespace of its own,
// which end with the check. An uplink leads to a second network namespace, which has the gateways.
package main

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"

	"unnest.io/unnest/internal/check/cni"
)

const (
	keptFile = "docs/results/cni-plugins.jsonl"
	pageFile = "docs/results/cni-plugins.md"
	checker  = "bin/unnest-conformance"
)

// plugins is the package of those that are checked.
const plugins = "github.com/containernetworking/plugins/plugins/...@v1.10.0"

// version is that of the specification.
const version = "1.1.0"

// object is one of JSON.
type object = map[string]any

// capacity is how many addresses a list's IPAM plugin has.
const capacity = 9

// addresses is a configuration of host-local with addresses of both families, and gateways, for as many
// pods as capacity.
func addresses(dir string) object {
	ranges := func(prefix, separator string, bits int) []any {
		return []any{object{
			"subnet": fmt.Sprintf("%s%s0/%d", prefix, separator, bits), "gateway": prefix + separator + "1",
			"rangeStart": prefix + separator + "10", "rangeEnd": prefix + separator + "18",
		}}
	}
	return object{
		"type": "host-local", "dataDir": filepath.Join(dir, "leases"),
		"ranges": []any{ranges("10.80.0", ".", 24), ranges("fd80", "::", 64)},
		"routes": []any{object{"dst": "0.0.0.0/0"}, object{"dst": "::/0"}},
	}
}

// list is a network configuration list that is checked.
type list struct {
	name     string
	capacity int    // pods that the network can hold; 0: as many as there are addresses
	device   string // a device that this kernel may lack: arguments of ip link add; "": none
	plugins  func(dir string) []object
}

// bridge is a bridge with more plugins behind it.
func bridge(name string, more ...object) list {
	return list{name: name, plugins: func(dir string) []object {
		return append([]object{{"type": "bridge", "bridge": "cni0", "isGateway": true, "ipMasq": true, "ipam": addresses(dir)}}, more...)
	}}
}

// on is one plugin with addresses of host-local.
func on(name string, capacity int, settings object) list {
	return list{name: name, capacity: capacity, plugins: func(dir string) []object {
		settings["type"], settings["ipam"] = name, addresses(dir)
		return []object{settings}
	}}
}

// of is a list that needs a device.
func (l list) of(device string) list {
	l.device = device
	return l
}

// missing reports whether this kernel has no driver of the list's device.
func (l list) missing() bool {
	out, _ := exec.Command("unshare", "--net", "sh", "-c", "ip link add name probe "+l.device).CombinedOutput()
	return strings.Contains(string(out), "Unknown device type")
}

// lists are what is checked. Left out are tap, whose pods reach nobody, sbr, which moves the routes of the result
// to another table, and host-device, whose only device stays with the pod of a check that fails.
var lists = []list{
	bridge("bridge"),
	on("ptp", 0, object{"ipMasq": true}),
	on("macvlan", 0, object{"master": "up0"}),
	on("ipvlan", 0, object{"master": "up0"}).of("link lo type ipvlan"),
	on("vlan", 1, object{"master": "up0", "vlanId": 7}).of("link lo type vlan id 7"),
	on("dummy", 0, object{}).of("type dummy"),
	bridge("bridge, portmap", object{"type": "portmap", "capabilities": object{"portMappings": true}}),
	bridge("bridge, bandwidth", object{"type": "bandwidth", "ingressRate": 8000000, "ingressBurst": 8000000}),
	bridge("bridge, firewall", object{"type": "firewall"}),
	bridge("bridge, tuning", object{"type": "tuning", "sysctl": object{"net.core.somaxconn": "500"}}),
}

// setUp makes the uplink up0, with a gateway behind it, in the shell's namespaces.
const setUp = `set -e
mount -t tmpfs tmpfs /run
mkdir /run/netns
ip link set lo up
echo 1 >/proc/sys/net/ipv4/ip_forward
ip netns add gateway
ip link add up0 type veth peer name gw0 netns gateway
ip link set up0 up
ip -n gateway link set gw0 up
ip address add 10.79.0.2/24 dev up0
ip route add default via 10.79.0.1
at=gw0
case $1 in
vlan)
	at=gw7
	ip -n gateway link add link gw0 name gw7 type vlan id 7
	ip -n gateway link set gw7 up
	;;
esac
case $1 in
macvlan | ipvlan | vlan)
	ip -n gateway address add 10.80.0.1/24 dev $at
	ip -n gateway address add fd80::1/64 dev $at nodad
	;;
esac
shift
exec "$@"
`

func main() {
	var err error
	switch len(os.Args) {
	case 1:
		err = publish()
	case 2:
		err = run(os.Args[1])
	default:
		err = errors.New("want one directory, or none")
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "cniplugins:", err)
		os.Exit(1)
	}
}

func run(dir string) error {
	if _, err := os.Stat(checker); err != nil {
		return fmt.Errorf("%w: run make build", err)
	}
	dir, err := filepath.Abs(dir)
	if err != nil {
		return err
	}
	built := filepath.Join(dir, "plugins")
	if _, err := os.Stat(filepath.Join(built, "bridge")); err != nil {
		fmt.Fprintln(os.Stderr, "build", plugins)
		cmd := exec.Command("go", "install", "-trimpath", plugins)
		cmd.Env = append(os.Environ(), "GOBIN="+built, "CGO_ENABLED=0", "GOFLAGS=")
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("build %s: %w: %s", plugins, err, out)
		}
	}
	var all []outcome
	for i, l := range lists {
		if l.device != "" && l.missing() {
			fmt.Fprintln(os.Stderr, "skip", l.name, "because this kernel has no such device")
			all = append(all, outcome{List: l.name})
			continue
		}
		fmt.Fprintf(os.Stderr, "[%d/%d] check %s\n", i+1, len(lists), l.name)
		got, err := l.check(filepath.Join(dir, strings.ReplaceAll(l.name, ", ", "-")), built)
		if err != nil {
			return fmt.Errorf("%s: %w", l.name, err)
		}
		all = append(all, got...)
	}
	var kept bytes.Buffer
	for _, o := range all {
		line, err := json.Marshal(o)
		if err != nil {
			return err
		}
		kept.Write(append(line, '\n'))
	}
	if err := os.WriteFile(keptFile, kept.Bytes(), 0o644); err != nil {
		return err
	}
	return publish()
}

// publish writes the page of the kept outcomes.
func publish() error {
	f, err := os.Open(keptFile)
	if err != nil {
		return err
	}
	defer f.Close()
	var all []outcome
	for lines := json.NewDecoder(f); ; {
		var o outcome
		err := lines.Decode(&o)
		if errors.Is(err, io.EOF) {
			return os.WriteFile(pageFile, []byte(render(all)), 0o644)
		}
		if err != nil {
			return fmt.Errorf("read %s: %w", keptFile, err)
		}
		all = append(all, o)
	}
}

// outcome is the outcome of one check of one list.
type outcome struct {
	List    string      `json:"list"`
	Check   string      `json:"check"` // "": the kernel has no such device
	Section string      `json:"section"`
	Verdict cni.Verdict `json:"verdict"`
	Error   string      `json:"error,omitempty"`
	Reason  string      `json:"reason,omitempty"`
}

// check checks the list, whose plugins keep their files in dir.
func (l list) check(dir, built string) (all []outcome, err error) {
	if err := os.RemoveAll(dir); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	text, err := json.Marshal(object{"cniVersion": version, "name": "net", "plugins": l.plugins(dir)})
	if err != nil {
		return nil, err
	}
	file := filepath.Join(dir, "net.conflist")
	if err := os.WriteFile(file, text, 0o644); err != nil {
		return nil, err
	}
	pods := cmp.Or(l.capacity, capacity)
	cmd := exec.Command("unshare", "--net", "--mount", "sh", "-c", setUp, "sh", l.name,
		checker, "-json", "-cni-path", built, "-version", version, "-capacity", strconv.Itoa(pods), "-wait", "5s", file)
	out, err := cmd.Output()
	lines := bufio.NewScanner(bytes.NewReader(out))
	for lines.Scan() {
		o := outcome{List: l.name}
		if json.Unmarshal(lines.Bytes(), &o) == nil && o.Check != "" {
			o.Error = strings.ReplaceAll(o.Error, dir, "DIR")
			all = append(all, o)
		}
	}
	failed := (*exec.ExitError)(nil)
	switch {
	case lines.Err() != nil:
		return nil, lines.Err()
	case errors.As(err, &failed) && failed.ExitCode() == 1 && len(all) > 0: // a check has failed
		return all, nil
	case failed != nil:
		return nil, fmt.Errorf("%w: %s", err, failed.Stderr)
	}
	return all, err
}
