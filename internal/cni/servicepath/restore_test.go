package servicepath

import (
	"errors"
	"os/exec"
	"strings"
	"testing"

	"github.com/containernetworking/plugins/pkg/ns"
	"github.com/google/nftables"
)

func (w *world) nft(n ns.NetNS, script string, args ...string) string {
	w.t.Helper()
	var out []byte
	w.in(n, func() (err error) {
		c := exec.Command("nft", args...)
		c.Stdin = strings.NewReader(script)
		if out, err = c.CombinedOutput(); err != nil {
			w.t.Logf("nft %s: %s", strings.Join(args, " "), out)
		}
		return err
	})
	return string(out)
}

// The tables of guest and pods work after nft has saved and restored them, over
// themselves and after a flush.
func TestRestore(t *testing.T) {
	w := newWorld(t)
	w.addPaths()
	w.serveAll()
	for _, flush := range []string{"", "delete table inet unnest-services\n"} {
		for _, n := range []ns.NetNS{w.guest, w.a} {
			saved := w.nft(n, "", "list", "table", "inet", tableName)
			w.nft(n, flush+saved, "-f", "-")
			if got := w.nft(n, "", "list", "table", "inet", tableName); flush != "" && got != saved {
				t.Errorf("saved:\n%s\nrestored:\n%s", saved, got)
			}
		}
		for _, f := range families {
			if got, want := w.ask(w.a, "tcp", f.toSelf, "80"), "a "+f.guest; got != want {
				t.Errorf("%s, service of the pod itself: got %q, want %q", f.name, got, want)
			}
			if got, want := w.ask(w.a, "tcp", f.tob, "80"), "b "+f.a; got != want {
				t.Errorf("%s, service in the guest: got %q, want %q", f.name, got, want)
			}
			if got := w.ask(w.a, "tcp", f.none, "80"); !strings.Contains(got, "connection refused") {
				t.Errorf("%s, no such service: got %q", f.name, got)
			}
		}
		w.in(w.guest, func() error { return filterGuest(w.endsA.Guest.Name) })
	}
}

// A path can be added to the table of an earlier version, and to a restored one of it.
func TestEarlierTable(t *testing.T) {
	w := newWorld(t)
	link := w.pathA.Owner.guestEnd()
	earlier := func(flagged bool) {
		w.in(w.guest, func() error {
			return write(func(c *nftables.Conn) error {
				c.AddTable(table())
				c.DelTable(table())
				set := hairpins(c.AddTable(table()))
				set.Concatenation, set.KeyByteOrder = flagged, nil
				return errors.Join(c.AddSet(set, nil), c.SetAddElements(set, hairpin("other")))
			})
		})
	}
	for _, flagged := range []bool{true, false} {
		earlier(flagged)
		w.in(w.guest, func() error { return filterGuest(link) })
		w.in(w.guest, func() error { return checkHairpin(link) })
		w.in(w.guest, func() error { return checkHairpin("other") })
	}
	earlier(true)
	w.addPaths()
	w.serveAll()
	for _, f := range families {
		if got, want := w.ask(w.a, "tcp", f.toSelf, "80"), "a "+f.guest; got != want {
			t.Errorf("%s, service of the pod itself: got %q, want %q", f.name, got, want)
		}
	}
}
