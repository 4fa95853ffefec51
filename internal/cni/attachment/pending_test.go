package attachment

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/containernetworking/cni/pkg/skel"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"unnest.io/unnest/internal/cni/hostclient"
)

func newPending(t *testing.T) pending {
	useStateDir(t, filepath.Join(t.TempDir(), "run"))
	return pending{dir: "pending", what: "NIC", server: "10.0.0.1:7443"}
}

func useStateDir(t *testing.T, dir string) {
	before := StateDir
	StateDir = dir
	t.Cleanup(func() { StateDir = before })
}

func TestRecords(t *testing.T) {
	p := newPending(t)
	if all, err := p.list(); err != nil || len(all) != 0 {
		t.Errorf("nothing is recorded: got %v, %v", all, err)
	}
	if p.recorded("c1", "eth0") {
		t.Error("c1 eth0 is recorded")
	}
	other := p
	other.server = "10.0.0.2:7443"
	for range 2 { // a second time changes nothing
		if err := errors.Join(p.record("c1", "eth0"), other.record("c2", "eth0")); err != nil || !p.recorded("c1", "eth0") {
			t.Errorf("c1 eth0 is not recorded: %v", err)
		}
	}
	for name, content := range map[string]string{
		".new-1": `{"container":"c3"`, "c4:eth0": `{`, "c5:eth0": `{"container":"c6","interface":"eth0","server":"10.0.0.1:7443"}`,
	} {
		if err := os.WriteFile(filepath.Join(p.path(), name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if all, err := p.list(); err != nil || len(all) != 1 || all[0] != (record{"c1", "eth0", "10.0.0.1:7443"}) {
		t.Errorf("got %v, %v, want c1 eth0", all, err)
	}
	p.dir = "pending-endpoints"
	if all, err := p.list(); err != nil || len(all) != 0 {
		t.Errorf("of another kind: got %v, %v", all, err)
	}
}

func TestRecordThatCannotBeWritten(t *testing.T) {
	p := newPending(t)
	if err := os.MkdirAll(StateDir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(p.path(), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := p.record("c1", "eth0"); err == nil {
		t.Error("recorded in a file that is not a directory")
	}
}

// A refused release stays recorded, the others do not.
func TestRetry(t *testing.T) {
	p := newPending(t)
	if err := errors.Join(p.record("c1", "eth0"), p.record("c2", "eth0"), p.record("c3", "eth0")); err != nil {
		t.Fatal(err)
	}
	refused := errors.New("refused")
	released := map[string]int{}
	p.release = func(_ context.Context, container, iface string) error {
		released[container+" "+iface]++
		if container == "c2" {
			return refused
		}
		return nil
	}
	err := p.retry(t.Context())
	all, listErr := p.list()
	if !errors.Is(err, refused) || listErr != nil || len(released) != 3 || len(all) != 1 || all[0].Container != "c2" {
		t.Errorf("got %v, released %v, left %v, %v", err, released, all, listErr)
	}
}

func TestWhileAnotherReleases(t *testing.T) {
	p := newPending(t)
	if err := p.record("c1", "eth0"); err != nil {
		t.Fatal(err)
	}
	unlock, err := LockDir(t.Context(), p.path())
	if err != nil {
		t.Fatal(err)
	}
	p.release = func(context.Context, string, string) error {
		t.Error("released while another holds the lock")
		return nil
	}
	if err := p.retry(t.Context()); err != nil {
		t.Errorf("others': %v", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if err := p.reconcile(ctx, "c1", "eth0"); !errors.Is(err, unix.EWOULDBLOCK) {
		t.Errorf("own: got %v", err)
	}
	file := p.file("c1", "eth0")
	time.AfterFunc(100*time.Millisecond, func() {
		_ = os.Remove(file)
		unlock()
	})
	if err := p.reconcile(t.Context(), "c1", "eth0"); err != nil {
		t.Errorf("own, released meanwhile: %v", err)
	}
}

func TestLock(t *testing.T) {
	useStateDir(t, t.TempDir())
	args := &skel.CmdArgs{ContainerID: "c1", IfName: "eth0"}
	unlock, err := NIC.lock(t.Context(), args.ContainerID, args.IfName)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := NIC.lock(ctx, args.ContainerID, args.IfName); !errors.Is(err, unix.EWOULDBLOCK) {
		t.Errorf("a second command: got %v", err)
	}
	time.AfterFunc(50*time.Millisecond, unlock)
	again, err := NIC.lock(t.Context(), args.ContainerID, args.IfName)
	if err != nil {
		t.Fatalf("after the first: %v", err)
	}
	again()
}

// A program that a command calls keeps the lock of a NIC, as an IPAM plugin must, and not that of an endpoint.
func TestLockOfCalledPrograms(t *testing.T) {
	useStateDir(t, t.TempDir())
	for _, c := range []struct {
		kind Kind
		keep int
	}{{NIC, 1}, {Endpoint, 0}} {
		unlock, err := c.kind.lock(t.Context(), "c1", "eth0")
		if err != nil {
			t.Fatal(err)
		}
		called := exec.Command("sleep", "infinity")
		if err := called.Start(); err != nil {
			t.Fatal(err)
		}
		open, err := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", called.Process.Pid))
		if err != nil || len(open) < 3 {
			t.Fatalf("it has open %v, %v", open, err)
		}
		kept := 0
		for _, fd := range open {
			if to, err := os.Readlink(fd); err == nil && strings.HasPrefix(to, StateDir) {
				kept++
			}
		}
		if err := called.Process.Kill(); kept != c.keep || err != nil {
			t.Errorf("%s: it has %d locks, want %d (%v)", c.kind.name, kept, c.keep, err)
		}
		_ = called.Wait() // it was killed
		unlock()
	}
}

// A refusal is an error. A release that the daemon does not answer is recorded, and
// the NIC moved out of the pod. After a release, earlier ones are retried.
func TestEnd(t *testing.T) {
	refused := errors.New("refused")
	unanswered := &hostclient.Refusal{Status: status.New(codes.Unavailable, "connection refused")}
	stuck := errors.New("cannot be moved out")
	for _, c := range []struct {
		name     string
		release  error
		want     error
		movedOut bool
		left     []string
	}{
		{"released", nil, nil, false, nil},
		{"refused", refused, refused, false, []string{"c2"}},
		{"unanswered", unanswered, stuck, true, []string{"c1", "c2"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := newPending(t)
			if err := p.record("c2", "eth0"); err != nil {
				t.Fatal(err)
			}
			p.release = func(context.Context, string, string) error { return c.release }
			movedOut := false
			recorded, err := p.end(t.Context(), "c1", "eth0", func() error {
				movedOut = true
				return stuck
			})
			if !errors.Is(err, c.want) || (err == nil) != (c.want == nil) || movedOut != c.movedOut || recorded != c.movedOut {
				t.Errorf("got %v, moved out %v; want %v, %v", err, movedOut, c.want, c.movedOut)
			}
			wantRecorded(t, p, c.left...)
		})
	}
}

// Only the attachment's own pending release has to succeed.
func TestReconcile(t *testing.T) {
	refused := errors.New("refused")
	for _, c := range []struct {
		refuses string
		want    error
		left    []string
	}{{"none", nil, nil}, {"c1", refused, []string{"c1", "c2"}}, {"c2", nil, []string{"c2"}}} {
		p := newPending(t)
		if err := errors.Join(p.record("c1", "eth0"), p.record("c2", "eth0")); err != nil {
			t.Fatal(err)
		}
		p.release = func(_ context.Context, container, _ string) error {
			if container == c.refuses {
				return refused
			}
			return nil
		}
		err := p.reconcile(t.Context(), "c1", "eth0")
		if !errors.Is(err, c.want) || (err == nil) != (c.want == nil) {
			t.Errorf("%s refused: got %v, want %v", c.refuses, err, c.want)
		}
		wantRecorded(t, p, c.left...)
	}
}

// wantRecorded checks which containers' eth0 is recorded.
func wantRecorded(t *testing.T, p pending, want ...string) {
	t.Helper()
	all, err := p.list()
	var got []string
	for _, r := range all {
		got = append(got, r.Container)
	}
	if slices.Sort(got); err != nil || !slices.Equal(got, want) {
		t.Errorf("recorded are %v, %v; want %v", got, err, want)
	}
}
