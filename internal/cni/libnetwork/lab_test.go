package libnetwork_test

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/containernetworking/plugins/pkg/ns"
	"github.com/vishvananda/netlink"

	"unnest.io/unnest/internal/cni/attachment"
	"unnest.io/unnest/internal/cni/cnitest"
	"unnest.io/unnest/internal/cni/libnetwork"
)

const (
	driverName = "unnest-driver"
	client     = "/usr/bin/docker" // of the same package as dockerd
)

// TestMain is the driver when the test binary is called by its name.
func TestMain(m *testing.M) {
	if filepath.Base(os.Args[0]) == driverName {
		attachment.StateDir = os.Getenv("TEST_STATE_DIR")
		os.Exit(libnetwork.Main(context.Background(), os.Args[1:], os.Stdout, os.Stderr))
	}
	os.Exit(m.Run())
}

// lab is a guest with a real dockerd and the driver, on a host with a fake daemon.
type lab struct {
	*cnitest.Lab
	t      *testing.T
	host   *fakeHost
	mounts *exec.Cmd // holds the mount namespace of dockerd and driver
	driver *exec.Cmd
	docker *exec.Cmd

	maxIdle        string // after which a sweep takes a NIC for lost
	away           string // for how long the driver repeats requests to the daemon
	socketOfDriver string
}

// newGuest is a guest with neither driver nor Docker.
func newGuest(t *testing.T) *lab {
	t.Helper()
	l := &lab{Lab: cnitest.New(t, driverName), t: t, maxIdle: "15m", away: "1m", socketOfDriver: "/run/docker/plugins/unnest.sock"}
	l.host = newHost(l)
	// Docker's directory of plugins cannot be chosen.
	l.mounts = l.inGuest("unshare", "--mount", "sh", "-c", "mount -t tmpfs tmpfs /run && mkdir -p /run/docker/plugins && echo ready && exec sleep infinity")
	out, err := l.mounts.StdoutPipe()
	l.Must(err)
	l.start(l.mounts)
	if _, err := out.Read(make([]byte, 8)); err != nil {
		t.Fatalf("make mount namespace: %v", err)
	}
	t.Cleanup(func() { l.kill(l.mounts, syscall.SIGKILL) })
	t.Cleanup(func() { l.kill(l.driver, syscall.SIGTERM) })
	return l
}

// newDriver is a guest with the driver and no Docker.
func newDriver(t *testing.T) *lab {
	t.Helper()
	l := newGuest(t)
	l.startDriver()
	return l
}

// newLab is newDriver with Docker and an image.
func newLab(t *testing.T) *lab {
	t.Helper()
	l := newDriver(t)
	l.startAll()
	return l
}

// startAll starts Docker with an image.
func (l *lab) startAll() {
	l.t.Helper()
	for _, program := range []string{"containerd", "dockerd", client, "docker-proxy", "busybox"} {
		if _, err := exec.LookPath(program); err != nil {
			l.t.Fatalf("install docker.io and busybox: %v", err)
		}
	}
	containerd := l.mounted("containerd", "--root", filepath.Join(l.Dir, "containerd"), "--state", filepath.Join(l.Dir, "run-containerd"),
		"--address", filepath.Join(l.Dir, "containerd.sock"))
	l.start(containerd)
	l.t.Cleanup(func() { l.kill(containerd, syscall.SIGTERM) })
	l.t.Cleanup(func() { l.kill(l.docker, syscall.SIGTERM) })
	l.startDocker()
	l.t.Cleanup(l.removeContainers)
	l.importImage()
}

// inGuest is a command in the guest's network namespace, with its output in the test's directory.
func (l *lab) inGuest(args ...string) *exec.Cmd {
	cmd := exec.Command(args[0], args[1:]...)
	log, err := os.OpenFile(filepath.Join(l.Dir, filepath.Base(args[0])+".log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	l.Must(err)
	l.t.Cleanup(func() { _ = log.Close() })
	cmd.Stderr = log
	cmd.Env = append(os.Environ(), "TEST_STATE_DIR="+filepath.Join(l.Dir, "run"), "GOCOVERDIR="+l.Dir)
	return cmd
}

func (l *lab) start(cmd *exec.Cmd) {
	l.t.Helper()
	l.Must(l.Guest.Do(func(ns.NetNS) error { return cmd.Start() }))
}

// kill ends a command and waits for it.
func (l *lab) kill(cmd *exec.Cmd, signal syscall.Signal) {
	if cmd == nil || cmd.ProcessState != nil {
		return
	}
	_ = cmd.Process.Signal(signal) // it may have ended
	_ = cmd.Wait()
}

// mounted is a command in the mount namespace, too.
func (l *lab) mounted(args ...string) *exec.Cmd {
	return l.inGuest(append([]string{"nsenter", "--mount", "--target", strconv.Itoa(l.mounts.Process.Pid)}, args...)...)
}

func (l *lab) startDriver() {
	l.t.Helper()
	l.driver = l.mounted(filepath.Join(l.Dir, driverName), "-server", l.Server, "-credentials", filepath.Join(l.Dir, "unnest"),
		"-state", filepath.Join(l.Dir, "networks"), "-socket", l.socketOfDriver, "-interval", "1s", "-max-idle", l.maxIdle, "-away", l.away, "-v")
	l.start(l.driver)
}

func (l *lab) socket() string { return "unix://" + filepath.Join(l.Dir, "docker.sock") }

func (l *lab) startDocker() {
	l.t.Helper()
	l.docker = l.mounted("dockerd", "--host", l.socket(), "--data-root", filepath.Join(l.Dir, "data"), "--exec-root", filepath.Join(l.Dir, "exec"),
		"--pidfile", filepath.Join(l.Dir, "docker.pid"), "--containerd", filepath.Join(l.Dir, "containerd.sock"), "--bridge", "none", "--iptables=false", "--ip6tables=false", "--ip-forward=false")
	l.start(l.docker)
	l.until("dockerd answers", func() error {
		_, err := l.try("version")
		return err
	})
}

// until waits for something that happens in another process.
func (l *lab) until(what string, f func() error) {
	l.t.Helper()
	for end := time.Now().Add(2 * time.Minute); ; time.Sleep(100 * time.Millisecond) {
		err := f()
		if err == nil {
			return
		}
		if time.Now().After(end) {
			l.logs()
			l.t.Fatalf("%s: %v", what, err)
		}
	}
}

func (l *lab) logs() {
	files, _ := filepath.Glob(filepath.Join(l.Dir, "*.log"))
	for _, f := range files {
		content, _ := os.ReadFile(f)
		l.t.Logf("%s:\n%s", filepath.Base(f), content[max(0, len(content)-3000):])
	}
}

// try runs the docker command.
func (l *lab) try(args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, client, append([]string{"--host", l.socket()}, args...)...)
	out, err := cmd.CombinedOutput()
	text := strings.TrimSpace(string(out))
	if err != nil {
		err = fmt.Errorf("docker %s: %w: %s", strings.Join(args, " "), err, text)
	}
	return text, err
}

// do runs a docker command that must succeed.
func (l *lab) do(args ...string) string {
	l.t.Helper()
	out, err := l.try(args...)
	if err != nil {
		l.logs()
		l.t.Fatal(err)
	}
	return out
}

// fails runs a docker command that must fail with a text.
func (l *lab) fails(want string, args ...string) {
	l.t.Helper()
	if out, err := l.try(args...); err == nil || !strings.Contains(out, want) {
		l.t.Errorf("docker %s: got %v, %s, want %q", strings.Join(args, " "), err, out, want)
	}
}

// importImage makes an image of busybox and the libraries that it needs.
func (l *lab) importImage() {
	l.t.Helper()
	busybox, err := exec.LookPath("busybox")
	l.Must(err)
	files := map[string]string{"bin/busybox": busybox}
	needed, _ := exec.Command("ldd", busybox).Output() // it fails for a static one
	for _, word := range strings.Fields(string(needed)) {
		if strings.HasPrefix(word, "/") {
			files[word[1:]] = word
		}
	}
	var image bytes.Buffer
	w := tar.NewWriter(&image)
	for name, from := range files {
		content, err := os.ReadFile(from)
		l.Must(errors.Join(err, w.WriteHeader(&tar.Header{Name: name, Mode: 0o755, Size: int64(len(content))})))
		_, err = w.Write(content)
		l.Must(err)
	}
	for _, applet := range []string{"sh", "true", "sleep"} {
		l.Must(w.WriteHeader(&tar.Header{Name: "bin/" + applet, Typeflag: tar.TypeSymlink, Linkname: "busybox"}))
	}
	l.Must(errors.Join(w.WriteHeader(&tar.Header{Name: "tmp/", Typeflag: tar.TypeDir, Mode: 0o777}), w.Close()))
	path := filepath.Join(l.Dir, "image.tar")
	l.Must(os.WriteFile(path, image.Bytes(), 0o600))
	l.do("import", path, "box")
}

// removeContainers must leave nothing.
func (l *lab) removeContainers() {
	if all, err := l.try("ps", "-aq"); err == nil && all != "" {
		l.do(append([]string{"rm", "-f"}, strings.Fields(all)...)...)
	}
	l.wantNoNICs()
	if l.t.Failed() {
		l.logs()
	}
}

// wantNoNICs waits until the daemon has no NICs, of which nothing may be left in the guest.
func (l *lab) wantNoNICs() {
	l.t.Helper()
	l.until("all NICs are given back", func() error {
		if have := l.host.owners(); len(have) > 0 {
			return fmt.Errorf("the daemon has %v", have)
		}
		return nil
	})
	l.until("no state is left", func() error {
		left, err := filepath.Glob(filepath.Join(l.Dir, "run", "docker", "*", "*"))
		if err == nil && len(left) > 0 {
			err = fmt.Errorf("the driver has %v", left)
		}
		return err
	})
	for _, name := range l.Links(l.Guest) {
		if name != "eth0" {
			l.t.Errorf("the guest still has %s", name)
		}
	}
}

// link calls f on a link of a namespace.
func link(n ns.NetNS, name string, f func(netlink.Link) error) error {
	return n.Do(func(ns.NetNS) error {
		l, err := netlink.LinkByName(name)
		if err != nil {
			return err
		}
		return f(l)
	})
}
