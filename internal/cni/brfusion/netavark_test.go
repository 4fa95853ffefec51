package brfusion_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"unnest.io/unnest/internal/cni/netavark"
)

// podman runs the plugin of netavark in the guest, as netavark does.
func (l *lab) podman(input map[string]any, args ...string) map[string]any {
	l.t.Helper()
	stdin, err := json.Marshal(input)
	l.Must(err)
	cmd := exec.Command(filepath.Join(l.Dir, "podman", netavark.Name), args...)
	cmd.Stdin, cmd.Env = strings.NewReader(string(stdin)), l.Command("ADD", nil).Env
	a := l.Do(cmd)
	var answer map[string]any
	if a.Stdout != "" {
		if err := json.Unmarshal([]byte(a.Stdout), &answer); err != nil {
			l.t.Fatalf("%s: %s: %v", args[0], a.Stdout, err)
		}
	}
	if _, failed := answer["error"]; failed != (a.Exit != 0) {
		l.t.Errorf("%s: exit %d, %s%s", args[0], a.Exit, a.Stdout, a.Stderr)
	}
	return answer
}

// Podman's networks and containers by the protocol of netavark's plugins.
func TestNetavark(t *testing.T) {
	l := newLab(t)
	l.Must(errors.Join(os.Mkdir(filepath.Join(l.Dir, "podman"), 0o700),
		os.Symlink("../brfusion", filepath.Join(l.Dir, "podman", netavark.Name))))
	network := map[string]any{
		"name": "pods", "id": "2f25", "driver": "unnest", "internal": false, "ipv6_enabled": false, "dns_enabled": true,
		"options":      map[string]any{"server": l.Server, "credentials": filepath.Join(l.Dir, "unnest")},
		"ipam_options": map[string]any{"driver": "host-local"}, "network_interface": "kept",
	}
	created := l.podman(network, "create")
	if !reflect.DeepEqual(created["subnets"], []any{map[string]any{"subnet": "10.201.0.0/16", "gateway": "10.201.0.1"}}) ||
		created["dns_enabled"] != false || created["network_interface"] != "kept" || created["id"] != "2f25" {
		t.Errorf("created %v", created)
	}
	request := func(options map[string]any) map[string]any {
		options["interface_name"] = "eth0"
		return map[string]any{"container_id": "c1", "container_name": "web", "network": created, "network_options": options}
	}
	plain := request(map[string]any{"aliases": []any{"web"}})
	got := l.podman(plain, "setup", path(l.Pod))
	want := map[string]any{"dns_search_domains": []any{}, "dns_server_ips": []any{}, "interfaces": map[string]any{"eth0": map[string]any{
		"mac_address": "02:00:00:00:00:01", "subnets": []any{
			map[string]any{"ipnet": "10.201.0.50/16", "gateway": "10.201.0.1"}, map[string]any{"ipnet": "fd00:201::50/64", "gateway": "fd00:201::1"},
		},
	}}}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("setup: got %v, want %v", got, want)
	}
	for range 2 {
		if got := l.podman(plain, "teardown", path(l.Pod)); got != nil {
			t.Errorf("teardown: got %v", got)
		}
	}
	l.wantNothing()

	fixed := request(map[string]any{"static_ips": []any{"10.201.0.9"}})
	if got := l.podman(fixed, "setup", path(l.Pod)); !strings.Contains(fmt.Sprint(got), "10.201.0.9/16") {
		t.Errorf("setup with an address: got %v", got)
	}
	l.podman(fixed, "teardown", path(l.Pod))

	published := request(map[string]any{})
	published["port_mappings"] = []any{map[string]any{"host_port": 8080, "container_port": 80, "host_ip": "", "protocol": "tcp", "range": 1}}
	for want, answer := range map[string]map[string]any{
		"publish port 8080":              l.podman(published, "setup", path(l.Pod)),
		"the host chooses the MAC":       l.podman(request(map[string]any{"static_mac": "02:00:00:00:00:05"}), "setup", path(l.Pod)),
		"server is missing":              l.podman(map[string]any{"name": "n"}, "create"),
		`option "parent"`:                l.podman(map[string]any{"name": "n", "options": map[string]any{"parent": "eth0"}}, "create"),
		"--subnet 10.9.0.0/16":           l.podman(map[string]any{"name": "n", "subnets": []any{map[string]any{"subnet": "10.9.0.0/16"}}}, "create"),
		"want create, setup NETNS, tear": l.podman(nil, "other"),
	} {
		if text, _ := answer["error"].(string); !strings.Contains(text, want) {
			t.Errorf("got %v, want %q", answer, want)
		}
	}
	if got := l.podman(nil, "info"); got["api_version"] != "1.0.0" {
		t.Errorf("info: got %v", got)
	}
	l.wantNothing()
}
