package nft

import (
	"context"
	"encoding/binary"
	"os"
	"testing"
	"time"

	"github.com/google/nftables"
	"github.com/vishvananda/netns"

	"unnest.io/unnest/internal/netdev/thread"
)

// A transaction of ours whose events do not fit into the buffer is not taken for a change of
// others, which would be undone by another such transaction, without end. A change of others
// among them is found.
func TestAttackLostEvents(t *testing.T) {
	if os.Getenv("UNNEST_PRIVILEGED") != "1" {
		t.Skip("needs root and network namespaces: set UNNEST_PRIVILEGED=1")
	}
	_ = thread.Do(func() error { // t.Fatal ends its goroutine, and the thread with it
		ns, err := netns.New()
		must(t, err)
		defer ns.Close()
		table := &nftables.Table{Family: nftables.TableFamilyINet, Name: "own"}
		owner, conn := NewOwner(1, table), Connect(ns)
		defer conn.Close()
		fill := func() error { // with 200 times more than the buffer holds
			return conn.Transact(func(c *nftables.Conn) error {
				if err := owner.Replace(c); err != nil {
					return err
				}
				s := NewSet(2, table, "large", nftables.TypeIPAddr)
				if err := c.AddSet(s, nil); err != nil {
					return err
				}
				var elements []nftables.SetElement
				for i := range uint32(20000) {
					elements = append(elements, nftables.SetElement{Key: binary.BigEndian.AppendUint32(nil, i)})
				}
				return Change(c.SetAddElements, s, elements)
			})
		}
		lock, restored := make(chan struct{}, 1), make(chan error, 100)
		ctx, stop := context.WithCancel(t.Context())
		started, ended := make(chan struct{}, 1), make(chan error, 1)
		w := &watch{
			owner: owner, buffer: 16 << 10, ledger: ledgerOf(ns),
			restore: func() error {
				lock <- struct{}{}
				defer func() { <-lock }()
				defer func() { started <- struct{}{} }()
				return fill()
			},
			report: func(_ Generation, err error) { restored <- err; <-started },
		}
		go func() { ended <- w.watch(ctx, ns) }()
		<-started
		for range 3 {
			lock <- struct{}{}
			err := fill()
			<-lock
			must(t, err)
			time.Sleep(4 * settleTime) // events arrive, or not
		}
		if n := len(restored); n > 0 {
			t.Errorf("restored %d times after changes of our own", n)
		}
		other, err := nftables.New()
		must(t, err)
		lock <- struct{}{}
		err = fill()
		other.DelTable(table)
		if err == nil {
			err = other.Flush()
		}
		<-lock
		must(t, err)
		select {
		case err := <-restored:
			must(t, err)
		case <-time.After(time.Minute):
			t.Error("a change of others is not undone")
		}
		tables, err := other.ListTables()
		if err != nil || len(tables) != 1 {
			t.Errorf("%d tables, error %v, want ours", len(tables), err)
		}
		stop()
		must(t, <-ended)
		return nil
	})
}

// While events come one after the other and none is lost, the watch does not ask the kernel for its generation after each.
func TestAsksSeldom(t *testing.T) {
	w := watch{ledger: &ledger{}, known: &state{}, asked: time.Now()}
	for range 1000 { // without a connection to ask by
		must(t, w.account())
	}
}
