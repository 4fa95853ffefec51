package nft

import (
	"os"
	"testing"
	"time"

	"github.com/google/nftables"
	"github.com/mdlayher/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"unnest.io/unnest/internal/netdev/thread"
)

// message returns one of the kernel's.
func message(t *testing.T, kind int, attributes ...netlink.Attribute) netlink.Message {
	t.Helper()
	data, err := netlink.MarshalAttributes(attributes)
	if err != nil {
		t.Fatal(err)
	}
	return netlink.Message{
		Header: netlink.Header{Type: netlink.HeaderType(unix.NFNL_SUBSYS_NFTABLES<<8 | kind)},
		Data:   append([]byte{unix.NFPROTO_INET, 0, 0, 0}, data...),
	}
}

func TestFollow(t *testing.T) {
	own := &nftables.Table{Family: nftables.TableFamilyINet, Name: "own"}
	about := func(table string) netlink.Message {
		return message(t, unix.NFT_MSG_NEWRULE, netlink.Attribute{Type: unix.NFTA_RULE_TABLE, Data: append([]byte(table), 0)})
	}
	generation := func(id byte) netlink.Message {
		return message(t, unix.NFT_MSG_NEWGEN, netlink.Attribute{Type: unix.NFTA_GEN_ID, Data: []byte{0, 0, 0, id}})
	}
	tests := []struct {
		name     string
		messages []netlink.Message
		pending  bool
	}{
		{"another table", []netlink.Message{about("other"), generation(8)}, false},
		{"our table", []netlink.Message{about("other"), about("own"), generation(8)}, true},
		{"our table, not to its end", []netlink.Message{about("own")}, false},
		{"our table, later", []netlink.Message{about("other"), generation(8), about("own"), generation(9)}, true},
		{"a generation is missing", []netlink.Message{about("other"), generation(9)}, true},
		{"another family", []netlink.Message{func() netlink.Message { m := about("own"); m.Data[0] = unix.NFPROTO_IPV4; return m }(), generation(8)}, false},
	}
	for _, tt := range tests {
		w := watch{owner: NewOwner(1, own), last: 7}
		if err := w.follow(tt.messages); err != nil || w.pending != tt.pending {
			t.Errorf("%s: pending %t, want %t; %v", tt.name, w.pending, tt.pending, err)
		}
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// The kernel's number of generations tells that events were lost.
func TestMissedEvents(t *testing.T) {
	if os.Getenv("UNNEST_PRIVILEGED") != "1" {
		t.Skip("needs root and network namespaces: set UNNEST_PRIVILEGED=1")
	}
	_ = thread.Do(func() error { // t.Fatal ends its goroutine, and the thread with it
		check := func(err error) { t.Helper(); must(t, err) }
		ns, err := netns.New()
		check(err)
		defer ns.Close()
		w := &watch{}
		w.requests, err = dial(ns)
		check(err)
		defer w.requests.Close()
		w.last, err = w.generation()
		check(err)
		for range 3 {
			check(w.check())
		}
		if w.pending || w.patience() != checkInterval {
			t.Errorf("without a change: %+v", w)
		}
		c, err := nftables.New()
		check(err)
		c.AddTable(&nftables.Table{Family: nftables.TableFamilyINet, Name: "other"})
		check(c.Flush())
		check(w.check())
		if w.pending || w.patience() != settleTime {
			t.Errorf("a generation whose event may arrive: %+v", w)
		}
		check(w.check())
		if !w.pending || w.patience() > restoreInterval {
			t.Errorf("a generation whose event is lost: %+v", w)
		}
		restored := 0
		w.restore, w.report = func() error { restored++; return nil }, func(Generation, error) {}
		check(w.act())
		check(w.check())
		if restored != 1 || w.pending || w.behind != 0 || time.Since(w.restored) > time.Minute {
			t.Errorf("restored %d times: %+v", restored, w)
		}
		return nil
	})
}
