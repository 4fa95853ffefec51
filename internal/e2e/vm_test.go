package e2e

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"unnest.io/unnest/internal/testbed/fleet"
	"unnest.io/unnest/internal/testbed/lab"
	"unnest.io/unnest/internal/testbed/oci"
)

// Two guests have one container each, with its own NIC. The containers reach each other over
// the bridge of the host, and their NICs are removed with them.
func TestBrFusionAcrossGuests(t *testing.T) {
	unnest := unnestBinary(t)
	mustRun(t, unnest, "vm", "up", "--slots", "2", "--pool", "0", "node1", "node2")
	defer func() { mustRun(t, unnest, "vm", "down", "--all") }()
	if out := mustRun(t, unnest, "vm", "ls"); strings.Count(out, "running") != 2 {
		t.Errorf("vm ls: want two running guests, got\n%s", out)
	}
	before := map[string]string{}
	for _, node := range []string{"node1", "node2"} {
		before[node] = mustRun(t, unnest, "vm", "ssh", node, "ls", "/sys/class/net")
		mustRun(t, unnest, "vm", "ssh", node, "/etc/unnest/engine")
		mustRun(t, unnest, "vm", "ssh", node, "nerdctl", "run", "--detach", "--network", "brfusion", "--name", "web", containerImage,
			"sh", "-c", "echo hello from "+node+" >/tmp/index.html; exec busybox httpd -f -p 8080 -h /tmp")
	}
	for client, server := range map[string]string{"node1": "node2", "node2": "node1"} {
		address := strings.TrimSpace(mustRun(t, unnest, "vm", "ssh", server,
			"nerdctl", "inspect", "--format", "{{.NetworkSettings.IPAddress}}", "web"))
		out := mustRun(t, unnest, "vm", "ssh", client, "nerdctl", "exec", "web", "sh", "-c", // the server may not listen yet
			"for i in $(busybox seq 300); do busybox wget -q -O - http://"+address+":8080/ && exit; busybox sleep .2; done; exit 1")
		if out != "hello from "+server+"\n" {
			t.Errorf("%s at %s answers %q to %s", server, address, out, client)
		}
	}
	// The NIC is a virtio device from the VMM, not one end of a veth pair.
	if out := mustRun(t, unnest, "vm", "ssh", "node1", "nerdctl", "exec", "web", "busybox", "ls", "/sys/class/net/eth0/device/driver/module"); out == "" {
		t.Error("eth0 of the container has no driver")
	}
	for _, node := range []string{"node1", "node2"} {
		mustRun(t, unnest, "vm", "ssh", node, "nerdctl", "rm", "--force", "web")
		if out := mustRun(t, unnest, "vm", "ssh", node, "ls", "/sys/class/net"); out != before[node] {
			t.Errorf("%s: interfaces after the container: %q, before: %q", node, out, before[node])
		}
	}
}

// What people meet at guests of their own: exit codes, a daemon that has died, an image of theirs.
func TestGuestByHand(t *testing.T) {
	unnest := unnestBinary(t)
	mustRun(t, unnest, "vm", "up", "--slots", "2", "--pool", "0", "node1")
	defer func() { mustRun(t, unnest, "vm", "down", "--all") }()
	var stderr bytes.Buffer
	cmd := exec.Command(unnest, "vm", "ssh", "node1", "echo no >&2; exit 7")
	cmd.Stderr = &stderr
	if err := cmd.Run(); cmd.ProcessState.ExitCode() != 7 || stderr.String() != "no\n" {
		t.Errorf("a command that fails: %v, stderr %q", err, stderr.String())
	}

	l, err := lab.View("vms")
	if err != nil {
		t.Fatal(err)
	}
	f, err := fleet.Open(l)
	if err != nil {
		t.Fatal(err)
	}
	(&nodes{t: t, fleet: f}).killDaemon()
	warning := "the host daemon of the guests: it does not run"
	if out, err := exec.Command(unnest, "vm", "ls").CombinedOutput(); err != nil || !strings.Contains(string(out), warning) {
		t.Errorf("vm ls without a daemon: %v\n%s", err, out)
	}
	mustRun(t, unnest, "vm", "repair")
	if out, err := exec.Command(unnest, "vm", "ls").CombinedOutput(); err != nil || strings.Contains(string(out), warning) {
		t.Errorf("vm ls after the repair: %v\n%s", err, out)
	}

	archive := filepath.Join(t.TempDir(), "image.tar")
	file, err := os.Create(archive)
	if err != nil {
		t.Fatal(err)
	}
	image := oci.Image{Name: "example.com/mine:1", Arch: runtime.GOARCH, Files: map[string][]byte{"/etc/mine": []byte("mine\n")}, Entrypoint: []string{"/none"}}
	if err := errors.Join(image.Write(file), file.Close()); err != nil {
		t.Fatal(err)
	}
	mustRun(t, unnest, "vm", "load", archive)
	if out := mustRun(t, unnest, "vm", "ssh", "node1", "nerdctl", "images", "--quiet", "example.com/mine:1"); strings.TrimSpace(out) == "" {
		t.Error("the guest has no image example.com/mine:1")
	}
	// The daemon that was started again plugs NICs.
	mustRun(t, unnest, "vm", "ssh", "node1", "nerdctl", "run", "--rm", "--network", "brfusion", containerImage, "busybox", "ip", "addr")
}

const containerImage = "localhost/unnest/tools:1"

// mustRun runs a command, which must succeed, and returns its standard output.
func mustRun(t *testing.T, args ...string) string {
	t.Helper()
	var out, problem bytes.Buffer
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Stdout, cmd.Stderr = &out, &problem
	cmd.WaitDelay = time.Minute
	if err := cmd.Run(); err != nil {
		t.Fatalf("%s: %v: %s", strings.Join(args[1:], " "), err, problem.String())
	}
	return out.String()
}
