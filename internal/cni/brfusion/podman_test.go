package brfusion_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/containernetworking/plugins/pkg/ns"
	"github.com/vishvananda/netlink"

	"unnest.io/unnest/internal/cni/cnitest"
	"unnest.io/unnest/internal/cni/netavark"
)

// engine is a real Podman in the guest, with directories of its own, and busybox as root of its containers.
type engine struct {
	*lab
	root, files string // of the containers, and its own
}

// newEngine prepares Podman with a backend for networks: cni or netavark.
func newEngine(t *testing.T, backend string) *engine {
	t.Helper()
	e := &engine{lab: newLab(t)}
	e.root, e.files = filepath.Join(e.Dir, "root"), filepath.Join(e.Dir, "podman")
	for _, dir := range []string{"root/bin", "root/proc", "root/sys", "root/dev", "root/run", "root/etc", "root/tmp", "podman/net.d"} {
		e.Must(os.MkdirAll(filepath.Join(e.Dir, dir), 0o755))
	}
	busybox, err := exec.LookPath("busybox")
	if err != nil {
		t.Fatalf("install podman and busybox: %v", err)
	}
	needed, _ := exec.Command("ldd", busybox).Output() // it fails for a static one
	for _, path := range append(strings.Fields(string(needed)), busybox) {
		if !strings.HasPrefix(path, "/") {
			continue
		}
		to := filepath.Join(e.root, path)
		if path == busybox {
			to = filepath.Join(e.root, "bin/busybox")
		}
		content, err := os.ReadFile(path)
		e.Must(err)
		e.Must(os.MkdirAll(filepath.Dir(to), 0o755))
		e.Must(os.WriteFile(to, content, 0o755))
	}
	// The limits are no higher than those of the test.
	e.Must(os.WriteFile(filepath.Join(e.files, "containers.conf"), fmt.Appendf(nil, `[network]
network_backend = %q
cni_plugin_dirs = [%q, %q]
netavark_plugin_dirs = [%q]
[containers]
default_ulimits = ["nofile=1024:1024", "nproc=1024:1024"]
[engine]
cgroup_manager = "cgroupfs"
runtime = "runc"
events_logger = "file"
`, backend, e.Dir, cnitest.PluginDir, e.files), 0o600))
	t.Cleanup(func() { e.run("rm", "-f", "-t", "1", "-a") })
	return e
}

// try runs the podman command in the guest. Its own mount namespace keeps its networks' namespaces and locks.
func (e *engine) try(args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "podman", append([]string{
		"--root", filepath.Join(e.files, "storage"), "--runroot", filepath.Join(e.files, "run"), "--tmpdir", filepath.Join(e.files, "tmp"),
		"--network-config-dir", filepath.Join(e.files, "net.d"), "--log-level", "error",
	}, args...)...)
	cmd.Env = append(os.Environ(), "CONTAINERS_CONF="+filepath.Join(e.files, "containers.conf"), "TEST_STATE_DIR="+filepath.Join(e.Dir, "run"), "GOCOVERDIR="+e.Dir)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	err := e.Guest.Do(func(ns.NetNS) error { return cmd.Run() })
	if err != nil {
		err = fmt.Errorf("podman %s: %w: %s", strings.Join(args, " "), err, &out)
	}
	return strings.TrimSpace(out.String()), err
}

func (e *engine) run(args ...string) string {
	e.t.Helper()
	out, err := e.try(args...)
	if err != nil {
		e.t.Fatal(err)
	}
	return out
}

// givenBack waits until nothing is left: Podman cleans up in the background, too.
func (e *engine) givenBack() {
	e.t.Helper()
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		kept, err := filepath.Glob(filepath.Join(e.Dir, "run", "runtimes", "*", "*"))
		e.Must(err)
		if len(kept) == 0 && len(e.daemon.all()) == 0 {
			break
		}
	}
	e.wantNothing()
}

// containers starts, inspects, stops and removes containers of the network "pods".
func (e *engine) containers(network string) {
	e.t.Helper()
	e.run("run", "-d", "--name", "web", "--cap-add", "NET_RAW", "--network", network, "--rootfs", e.root, "busybox", "sleep", "1000")
	at := e.run("inspect", "-f", "{{with .NetworkSettings.Networks.pods}}{{.IPAddress}} {{.IPPrefixLen}} {{.Gateway}} {{.MacAddress}}{{end}}", "web")
	if want := "10.201.0.50 16 10.201.0.1 02:00:00:00:00:01"; at != want {
		e.t.Errorf("podman inspect: got %s, want %s", at, want)
	}
	e.serveHost()
	e.run("exec", "web", "busybox", "ping", "-c1", "-w10", "10.201.0.1")
	e.Must(e.Host.Do(func(ns.NetNS) error {
		br, err := netlink.LinkByName("br0")
		if err != nil {
			return err
		}
		return netlink.LinkDel(br)
	}))
	e.run("stop", "-t", "1", "web")
	e.givenBack()
	e.run("start", "web")
	e.run("rm", "-f", "-t", "1", "web")
	e.givenBack()

	e.run("run", "-d", "--name", "fixed", "--network", network, "--ip", "10.201.0.9", "--rootfs", e.root, "busybox", "sleep", "1000")
	if got := e.run("exec", "fixed", "busybox", "ip", "-o", "address", "show", "dev", "eth0"); !strings.Contains(got, "10.201.0.9/16") {
		e.t.Errorf("the container has %s", got)
	}
	e.run("rm", "-f", "-t", "1", "fixed")
	e.givenBack()
	if out, err := e.try("run", "--rm", "--network", network, "-p", "8080:80", "--rootfs", e.root, "busybox", "true"); err == nil || !strings.Contains(out, "publish") {
		e.t.Errorf("published port: got %v", err)
	}
	e.givenBack()
}

// Podman 4 of Debian 12 runs the plugin by CNI, Podman 5 of Debian 13 by netavark.
func TestPodman(t *testing.T) {
	version, err := exec.Command("podman", "--version").Output()
	if err != nil {
		t.Fatalf("install podman: %v", err)
	}
	if !strings.HasPrefix(string(version), "podman version 4.") {
		e := newEngine(t, "netavark")
		e.Must(os.Symlink("../brfusion", filepath.Join(e.files, netavark.Name)))
		e.run("network", "create", "-d", "unnest", "-o", "server="+e.Server, "-o", "credentials="+filepath.Join(e.Dir, "unnest"), "pods")
		e.containers("pods")
		e.run("network", "rm", "pods")
		return
	}
	e := newEngine(t, "cni")
	config := e.config(with("name", "pods"), with("ipam", map[string]any{"type": "hostd"}),
		with("capabilities", map[string]any{"ips": true, "mac": true, "portMappings": true}))
	list, err := json.Marshal(map[string]any{"cniVersion": "0.4.0", "name": "pods", "plugins": []json.RawMessage{config}})
	e.Must(err)
	e.Must(os.WriteFile(filepath.Join(e.files, "net.d", "pods.conflist"), list, 0o600))
	e.containers("pods")
}
