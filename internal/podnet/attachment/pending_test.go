package attachment

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func newPending(t *testing.T) Pending {
	return Pending{State: State(filepath.Join(t.TempDir(), "run")), Dir: "pending", What: "the NIC", Server: "10.0.0.1:7443"}
}

func TestNotes(t *testing.T) {
	p := newPending(t)
	if all, err := p.list(); err != nil || len(all) != 0 {
		t.Errorf("nothing noted: got %v, %v", all, err)
	}
	if p.noted("c1", "eth0") {
		t.Error("c1 eth0 is noted")
	}
	other := p
	other.Server = "10.0.0.2:7443"
	for range 2 { // twice is once
		if err := errors.Join(p.Note("c1", "eth0"), other.Note("c2", "eth0")); err != nil || !p.noted("c1", "eth0") {
			t.Errorf("c1 eth0 is not noted: %v", err)
		}
	}
	for name, content := range map[string]string{
		".new-1": `{"container":"c3"`, "c4:eth0": `{`, "c5:eth0": `{"container":"c6","interface":"eth0","server":"10.0.0.1:7443"}`,
	} {
		if err := os.WriteFile(filepath.Join(p.dir(), name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if all, err := p.list(); err != nil || len(all) != 1 || all[0] != (note{"c1", "eth0", "10.0.0.1:7443"}) {
		t.Errorf("got %v, %v, want c1 eth0", all, err)
	}
	p.Dir = "pending-endpoints"
	if all, err := p.list(); err != nil || len(all) != 0 {
		t.Errorf("of another kind: got %v, %v", all, err)
	}
}

func TestNoteThatCannotBeWritten(t *testing.T) {
	p := newPending(t)
	if err := os.MkdirAll(string(p.State), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(p.dir(), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := p.Note("c1", "eth0"); err == nil {
		t.Error("noted in a file that is no directory")
	}
}

// What is refused stays noted, what is given back does not.
func TestFinish(t *testing.T) {
	p := newPending(t)
	if err := errors.Join(p.Note("c1", "eth0"), p.Note("c2", "eth0"), p.Note("c3", "eth0")); err != nil {
		t.Fatal(err)
	}
	refused := errors.New("refused")
	given := map[string]int{}
	err := p.Finish(t.Context(), func(_ context.Context, container, iface string) error {
		given[container+" "+iface]++
		if container == "c2" {
			return refused
		}
		return nil
	})
	all, listErr := p.list()
	if !errors.Is(err, refused) || listErr != nil || len(given) != 3 || len(all) != 1 || all[0].Container != "c2" {
		t.Errorf("got %v, gave %v, left %v, %v", err, given, all, listErr)
	}
}

func TestWhileAnotherGivesBack(t *testing.T) {
	p := newPending(t)
	if err := p.Note("c1", "eth0"); err != nil {
		t.Fatal(err)
	}
	unlock, err := p.lock(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	give := func(context.Context, string, string) error {
		t.Error("given back while another holds the lock")
		return nil
	}
	if err := p.Finish(t.Context(), give); err != nil {
		t.Errorf("others': %v", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if err := p.Settle(ctx, give, "c1", "eth0"); !errors.Is(err, unix.EWOULDBLOCK) {
		t.Errorf("own: got %v", err)
	}
	time.AfterFunc(100*time.Millisecond, func() {
		_ = os.Remove(p.file("c1", "eth0"))
		unlock()
	})
	if err := p.Settle(t.Context(), give, "c1", "eth0"); err != nil {
		t.Errorf("own, given back meanwhile: %v", err)
	}
}

func TestLock(t *testing.T) {
	s := State(t.TempDir())
	unlock, err := s.Lock(t.Context(), "c1", "eth0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := s.Lock(ctx, "c1", "eth0"); !errors.Is(err, unix.EWOULDBLOCK) {
		t.Errorf("a second command: got %v", err)
	}
	time.AfterFunc(50*time.Millisecond, unlock)
	again, err := s.Lock(t.Context(), "c1", "eth0")
	if err != nil {
		t.Fatalf("after the first: %v", err)
	}
	again()
}
