package volume

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"unnest.io/unnest/internal/hostapi/hostdpb"
)

func TestWrongCalls(t *testing.T) {
	for _, args := range [][]string{
		{}, {"attach"}, {"attach", "volume", "p", "n"}, {"attach", "disk", "p", "n", "/x"}, {"mount", "volume", "p", "n", "/x"},
		{"attach", "volume", "p", "n", "/x", "4096"}, {"detach", "memory", "p", "n", "/x", "4096"},
		{"attach", "memory", "p", "n", "/x", "much"}, {"-server", "nowhere", "attach", "volume", "p", "n", "/x"}, {"-x"},
	} {
		var said bytes.Buffer
		if code := Main(t.Context(), args, strings.NewReader("key"), &said, &said); code != 2 || said.Len() == 0 {
			t.Errorf("%q: exit code %d, printed %q", args, code, said.String())
		}
	}
}

func TestNoCredentials(t *testing.T) {
	var said bytes.Buffer
	dir := t.TempDir()
	code := Main(t.Context(), []string{"-credentials", dir, "detach", "volume", "p", "n", dir}, nil, &said, &said)
	if code != 1 || !strings.Contains(said.String(), dir) {
		t.Errorf("exit code %d, printed %q", code, said.String())
	}
}

func TestMountUnknownTransport(t *testing.T) {
	err := Mount(t.Context(), &hostdpb.Volume{Name: "data"}, t.TempDir())
	if err == nil || !strings.Contains(err.Error(), "too old") {
		t.Errorf("got %v", err)
	}
}

// A device that does not appear is an error; another error ends the wait.
func TestAwait(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	tries := 0
	err := await(ctx, func() error {
		if tries++; tries == 3 {
			cancel()
		}
		return errNotYet
	})
	if !errors.Is(err, errNotYet) || tries < 3 {
		t.Errorf("got %v after %d tries", err, tries)
	}
	if err := await(ctx, func() error { return nil }); err != nil {
		t.Errorf("a present device: got %v", err)
	}
	if err := await(t.Context(), func() error { return unix.EPERM }); !errors.Is(err, unix.EPERM) {
		t.Errorf("a permanent error: got %v", err)
	}
}

func TestUnmountNothing(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root")
	}
	dir := t.TempDir()
	for _, path := range []string{dir, filepath.Join(dir, "none")} {
		if err := Unmount(path); err != nil {
			t.Errorf("%s: %v", path, err)
		}
	}
	if there, err := Mounted("/proc"); !there || err != nil {
		t.Errorf("/proc is mounted: %t, %v", there, err)
	}
	if there, err := Mounted(dir); there || err != nil {
		t.Errorf("%s is mounted: %t, %v", dir, there, err)
	}
}

// Lines of mountinfo that are mounts of a volume, and others.
func TestIsOf(t *testing.T) {
	device := &hostdpb.Volume{Transport: hostdpb.VolumeTransport_VOLUME_TRANSPORT_VIRTIOFS, Tag: "vp1"}
	export := &hostdpb.Volume{Transport: hostdpb.VolumeTransport_VOLUME_TRANSPORT_9P, Tag: "volumes", Path: "volume.data.web"}
	for line, want := range map[string]*hostdpb.Volume{
		"98 26 0:41 / /var/lib/kubelet/pods/u/volumes/x/mount rw,nosuid,nodev shared:5 - virtiofs vp1 rw\n": device,
		"98 26 0:41 /sub /data ro,nosuid,nodev - virtiofs vp1 rw\n":                                         device,
		"98 26 0:41 / /data rw - virtiofs vp11 rw\n":                                                        nil,
		"98 26 0:41 / /data rw - tmpfs vp1 rw\n":                                                            nil,
		"98 26 0:41 / /vp1\\040-\\040virtiofs rw - tmpfs tmpfs rw\n":                                        nil,
		"99 26 0:42 / /run/unnest/volumes rw,nosuid,nodev - 9p volumes rw,trans=virtio\n":                   nil,
		"99 26 0:42 /volume.data.web /data rw,nosuid,nodev - 9p volumes rw,trans=virtio\n":                  export,
		"99 26 0:42 /volume.data.web/sub/dir /data rw,nosuid,nodev master:7 - 9p volumes rw,trans=virtio\n": export,
		"99 26 0:42 /volume.data.web2 /data rw,nosuid,nodev - 9p volumes rw,trans=virtio\n":                 nil,
		"99 26 0:43 /volume.data.web /data rw,nosuid,nodev - 9p others rw,trans=virtio\n":                   nil,
		"": nil,
	} {
		for _, v := range []*hostdpb.Volume{device, export} {
			if got := isOf(v, line); got != (v == want) {
				t.Errorf("%q is a mount of %v: %t", line, v, got)
			}
		}
	}
}

// A mount in another mount namespace counts, as long as a process has that namespace, also if a process of it has another root
// directory and does not see the mount.
func TestEachMount(t *testing.T) {
	if os.Getenv("UNNEST_PRIVILEGED") != "1" {
		t.Skip("needs root: set UNNEST_PRIVILEGED=1")
	}
	dir := t.TempDir()
	where := ""
	mounted := func() bool {
		t.Helper()
		where = ""
		err := eachMount(func(process, namespace, line string) {
			if of, err := os.Readlink("/proc/" + process + "/ns/mnt"); strings.Contains(line, " "+dir+" ") && err == nil && of == namespace {
				where = namespace
			}
		})
		if err != nil {
			t.Error(err)
		}
		return where != ""
	}
	if mounted() {
		t.Error("mounted before")
	}
	script := `exec 3<&0; mount --bind / "$2" && mount -t tmpfs tmpfs "$1" && { cat <&3 & } && exec chroot "$2" sh -c 'echo mounted; exec cat'`
	container := exec.Command("unshare", "--mount", "--propagation=private", "sh", "-c", script, "sh", dir, t.TempDir())
	in, err := container.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := container.StdoutPipe()
	if err == nil {
		err = container.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewReader(out)
	if line, err := lines.ReadString('\n'); err != nil || !mounted() {
		t.Errorf("while a container has it: %q, %v", line, err)
	}
	if of, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/mnt", container.Process.Pid)); err != nil || of != where {
		t.Errorf("mounted in %s, want %s, %v", where, of, err)
	}
	if there, err := Mounted(dir); there || err != nil {
		t.Errorf("here: %t, %v", there, err)
	}
	if err := errors.Join(in.Close(), container.Wait()); err != nil {
		t.Error(err)
	}
	for begin := time.Now(); mounted(); time.Sleep(10 * time.Millisecond) {
		if time.Since(begin) > time.Minute {
			t.Fatal("mounted after the container's end")
		}
	}
}

// A program that does not see the processes of the guest cannot tell who uses a volume, nor can one whose daemon does not say where it is.
func TestUsesOfUnknown(t *testing.T) {
	if os.Getenv("UNNEST_PRIVILEGED") != "1" {
		t.Skip("needs root: set UNNEST_PRIVILEGED=1")
	}
	got := Uses([]*hostdpb.Volume{{Tag: "vp1"}, {}, {Tag: "vp2"}})
	if pids, err := os.Readlink("/proc/self/ns/pid"); err != nil || pids != initialPIDs {
		for _, use := range got {
			if !strings.Contains(use.Why, "hostPID") {
				t.Errorf("in a PID namespace of its own: %v", got)
			}
		}
		return
	}
	if got[0].Why != "" || !strings.Contains(got[1].Why, "update") || got[2].Why != "" {
		t.Errorf("got %q", got)
	}
	pod := exec.Command("unshare", "--pid", "--fork", "--mount-proc", os.Args[0], "-test.run=^TestUsesOfUnknown$")
	if out, err := pod.CombinedOutput(); err != nil {
		t.Errorf("%v: %s", err, out)
	}
}
