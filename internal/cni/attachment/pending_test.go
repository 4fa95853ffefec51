package attachment

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"unnest/internal/cni/failure"
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

// What is refused is told, what cannot be asked is noted and taken out of the pod, and
// what is given back lets earlier notes be finished.
func TestEnd(t *testing.T) {
	refused := errors.New("refused")
	unanswered := &failure.Refusal{Status: status.New(codes.Unavailable, "connection refused")}
	stuck := errors.New("cannot be taken out")
	for _, c := range []struct {
		name     string
		give     error
		want     error
		takenOut bool
		left     []string
	}{
		{"given back", nil, nil, false, nil},
		{"refused", refused, refused, false, []string{"c2"}},
		{"unanswered", unanswered, stuck, true, []string{"c1", "c2"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := newPending(t)
			if err := p.Note("c2", "eth0"); err != nil {
				t.Fatal(err)
			}
			takenOut := false
			err := p.End(t.Context(), func(context.Context, string, string) error { return c.give }, "c1", "eth0", func() error {
				takenOut = true
				return stuck
			})
			if !errors.Is(err, c.want) || (err == nil) != (c.want == nil) || takenOut != c.takenOut {
				t.Errorf("got %v, taken out %v; want %v, %v", err, takenOut, c.want, c.takenOut)
			}
			wantNoted(t, p, c.left...)
		})
	}
}

// An ADD waits for its own attachment's thing only.
func TestSettle(t *testing.T) {
	refused := errors.New("refused")
	for _, c := range []struct {
		refuses string
		want    error
		left    []string
	}{{"none", nil, nil}, {"c1", refused, []string{"c1", "c2"}}, {"c2", nil, []string{"c2"}}} {
		p := newPending(t)
		if err := errors.Join(p.Note("c1", "eth0"), p.Note("c2", "eth0")); err != nil {
			t.Fatal(err)
		}
		err := p.Settle(t.Context(), func(_ context.Context, container, _ string) error {
			if container == c.refuses {
				return refused
			}
			return nil
		}, "c1", "eth0")
		if !errors.Is(err, c.want) || (err == nil) != (c.want == nil) {
			t.Errorf("%s refused: got %v, want %v", c.refuses, err, c.want)
		}
		wantNoted(t, p, c.left...)
	}
}

// wantNoted checks whose interface eth0 is noted.
func wantNoted(t *testing.T, p Pending, want ...string) {
	t.Helper()
	all, err := p.list()
	var got []string
	for _, n := range all {
		got = append(got, n.Container)
	}
	if slices.Sort(got); err != nil || !slices.Equal(got, want) {
		t.Errorf("noted are %v, %v; want %v", got, err, want)
	}
}
