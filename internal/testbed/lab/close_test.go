package lab

import (
	"bufio"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"unnest.io/unnest/internal/netdev/share"
)

// ends are the ways in which a lab ends.
func ends(t *testing.T) map[string]func(*Lab) error {
	return map[string]func(*Lab) error{
		"closed": (*Lab).Close,
		"owner is killed": func(l *Lab) error {
			err := l.unlock() // as the kernel does
			_, reapErr := Reap(t.Context())
			return errors.Join(err, reapErr)
		},
	}
}

// An export outlives the daemon that has prepared it, and must not outlive the lab: neither
// if the lab is closed nor if its owner is killed. The files of its volumes stay.
func TestCloseUnmountsExports(t *testing.T) {
	for name, end := range ends(t) {
		t.Run(name, func(t *testing.T) {
			privileged(t)
			l, err := Create("test-lab")
			if err != nil {
				t.Fatal(err)
			}
			exports := []string{filepath.Join(l.Dir, "export"), filepath.Join(t.TempDir(), "export")}
			volume := t.TempDir()
			if err := os.WriteFile(volume+"/file", nil, 0o600); err != nil {
				t.Fatal(err)
			}
			for _, dir := range exports {
				e := share.Export{Dir: dir, Owner: l.Dir}
				t.Cleanup(func() { _ = e.Close() })
				if err := errors.Join(os.Mkdir(dir, 0o700), e.Prepare()); err != nil {
					t.Fatal(err)
				}
				f, err := os.Open(volume)
				if err != nil {
					t.Fatal(err)
				}
				defer f.Close()
				if _, err := e.Bind(share.ID{Kind: share.Volume, Pod: "web", Name: "data"}, f); err != nil {
					t.Fatal(err)
				}
			}
			if err := end(l); err != nil {
				t.Error(err)
			}
			assertGone(t, l)
			mounts, err := os.ReadFile("/proc/self/mountinfo")
			for _, dir := range exports {
				if err != nil || strings.Contains(string(mounts), dir) {
					t.Errorf("%s is still mounted: %v", dir, err)
				}
			}
			if _, err := os.Stat(volume + "/file"); err != nil {
				t.Errorf("a file of the volume: %v", err)
			}
		})
	}
}

// Close returns when the processes have ended, also those that have to be killed.
func TestCloseWaitsForKilled(t *testing.T) {
	privileged(t)
	l, err := Create("test-lab")
	if err != nil {
		t.Fatal(err)
	}
	const count = 3
	ended := make(chan struct{}, count)
	for range count {
		// Memory takes its time to be freed.
		p := exec.Command("ip", "netns", "exec", filepath.Base(l.HostNS()), "sh", "-c",
			`trap "" TERM; x=$(head -c 16777216 /dev/zero | tr "\0" x); echo ready; while :; do sleep 1; done`)
		out, err := p.StdoutPipe()
		if err == nil {
			err = p.Start()
		}
		if err != nil {
			t.Fatal(err)
		}
		if line, err := bufio.NewReader(out).ReadString('\n'); err != nil || line != "ready\n" {
			t.Fatalf("got %q, %v", line, err)
		}
		go func() {
			_ = p.Wait() // it was killed
			ended <- struct{}{}
		}()
	}
	match := func(p process) bool {
		ns, err := os.Stat(l.HostNS())
		return err == nil && p.netNS != nil && os.SameFile(ns, p.netNS)
	}
	if err := kill(match); err != nil {
		t.Error(err)
	}
	if left, err := find(match); err != nil || len(left) > 0 {
		t.Errorf("processes %v have not ended, %v", left, err)
	}
	for range count {
		select {
		case <-ended:
		case <-time.After(time.Minute):
			t.Fatal("a process has not ended")
		}
	}
	if err := l.Close(); err != nil {
		t.Error(err)
	}
}

// Close ends the programs of a lab. A command of the user's that names the lab's directory goes on, and so do the processes
// that have started the one that closes it, also from the lab's namespace.
func TestCloseSparesTheUser(t *testing.T) {
	privileged(t)
	l, err := Create("test-lab")
	if err != nil {
		t.Fatal(err)
	}
	shell := exec.Command("sh", "-c", "sleep 61.25; true", "rm -rf "+l.Dir)
	if err := shell.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- shell.Wait() }()
	if err := l.Close(); err != nil {
		t.Error(err)
	}
	select {
	case err := <-ended:
		t.Errorf("the shell has ended: %v", err)
	default:
		_ = shell.Process.Kill()
	}
	if left, err := find(func(process) bool { return true }); err != nil || slices.Contains(left, os.Getpid()) || slices.Contains(left, os.Getppid()) || slices.Contains(left, 1) {
		t.Errorf("%v, %v would end this process (%d) or one above (%d)", left, err, os.Getpid(), os.Getppid())
	}
}
