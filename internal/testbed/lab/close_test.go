package lab

import (
	"bufio"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"
)

// Close returns when the processes have ended, also those that have to be killed.
func TestCloseWaitsForKilled(t *testing.T) {
	privileged(t)
	l, err := Create("test-lab")
	if err != nil {
		t.Fatal(err)
	}
	const count = 3
	ended := make(chan error, count)
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
		go func() { ended <- p.Wait() }()
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
		case <-time.After(10 * time.Second):
			t.Fatal("a process has not ended")
		}
	}
	if err := l.Close(); err != nil {
		t.Error(err)
	}
}
