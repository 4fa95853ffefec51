package brfusion

import (
	"context"
	"errors"
	"net/netip"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"unnest/internal/podnet/netconf"
)

func useDir(t *testing.T) {
	old := pendingDir
	t.Cleanup(func() { pendingDir = old })
	pendingDir = filepath.Join(t.TempDir(), "run", "pending")
}

func TestNotes(t *testing.T) {
	useDir(t)
	c := netconf.BrFusion{Server: netip.MustParseAddrPort("10.0.0.1:7443")}
	if all, err := listPending(c); err != nil || len(all) != 0 {
		t.Errorf("nothing noted: got %v, %v", all, err)
	}
	mine := pending{"c1", "eth0", "10.0.0.1:7443"}
	if mine.noted() {
		t.Errorf("%v is noted", mine)
	}
	for _, p := range []pending{mine, mine, {"c2", "eth0", "10.0.0.2:7443"}} { // twice is once
		if err := p.note(); err != nil || !p.noted() {
			t.Errorf("%v is not noted: %v", p, err)
		}
	}
	for name, content := range map[string]string{
		".new-1": `{"container":"c3"`, "c4:eth0": `{`, "c5:eth0": `{"container":"c6","interface":"eth0","server":"10.0.0.1:7443"}`,
	} {
		if err := os.WriteFile(filepath.Join(pendingDir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if all, err := listPending(c); err != nil || len(all) != 1 || all[0] != mine {
		t.Errorf("got %v, %v, want %v", all, err, mine)
	}
}

func TestNoteThatCannotBeWritten(t *testing.T) {
	useDir(t)
	if err := os.MkdirAll(filepath.Dir(pendingDir), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(pendingDir, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := (pending{"c1", "eth0", "s"}).note(); err == nil {
		t.Error("noted in a file that is no directory")
	}
}

// The daemon is the zero value: a request would panic.
func TestWhileAnotherGivesBack(t *testing.T) {
	useDir(t)
	c := netconf.BrFusion{Server: netip.MustParseAddrPort("10.0.0.1:7443")}
	p := pending{"c1", "eth0", "10.0.0.1:7443"}
	if err := p.note(); err != nil {
		t.Fatal(err)
	}
	unlock, err := lockPending(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := finishPending(t.Context(), daemon{}, c); err != nil {
		t.Errorf("others' NICs: %v", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if err := p.settle(ctx, daemon{}); !errors.Is(err, unix.EWOULDBLOCK) {
		t.Errorf("own NIC: got %v", err)
	}
	time.AfterFunc(100*time.Millisecond, func() {
		_ = os.Remove(p.file())
		unlock()
	})
	if err := p.settle(t.Context(), daemon{}); err != nil {
		t.Errorf("own NIC, given back meanwhile: %v", err)
	}
}
