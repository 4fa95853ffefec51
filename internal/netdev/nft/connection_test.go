package nft

import (
	"errors"
	"fmt"
	"os"
	"testing"

	"github.com/google/nftables"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"unnest.io/unnest/internal/netdev/thread"
)

// The kernel answers a transaction once, however many changes it has: with a reply to each, those of a large one do not fit
// into the buffer. A change that fails is told from others, and undoes all.
func TestOneReply(t *testing.T) {
	if os.Getenv("UNNEST_PRIVILEGED") != "1" {
		t.Skip("needs root and network namespaces: set UNNEST_PRIVILEGED=1")
	}
	_ = thread.Do(func() error { // t.Fatal ends its goroutine, and the thread with it
		ns, err := netns.New()
		must(t, err)
		defer ns.Close()
		conn, table := Connect(ns), &nftables.Table{Family: nftables.TableFamilyINet, Name: "own"}
		defer conn.Close()
		chains := func() int {
			c, err := conn.New()
			must(t, err)
			all, err := c.ListChains()
			must(t, err)
			return len(all)
		}
		add := func(n int) func(*nftables.Conn) error {
			return func(c *nftables.Conn) error {
				c.AddTable(table)
				for i := range n {
					chain := c.AddChain(&nftables.Chain{Table: table, Name: fmt.Sprint("c", i)})
					c.AddRule(&nftables.Rule{Table: table, Chain: chain, Exprs: Accept()})
				}
				return nil
			}
		}
		must(t, conn.Transact(add(1)))
		must(t, conn.socket.SetReadBuffer(1)) // the kernel's least, which holds a few replies
		must(t, conn.Transact(add(1000)))
		if n := chains(); n != 1000 {
			t.Errorf("%d chains after 1000 changes", n)
		}
		err = conn.Transact(func(c *nftables.Conn) error {
			c.AddChain(&nftables.Chain{Table: table, Name: "more"})
			c.DelChain(&nftables.Chain{Table: table, Name: "missing"})
			c.AddChain(&nftables.Chain{Table: table, Name: "later"})
			return nil
		})
		if !errors.Is(err, unix.ENOENT) {
			t.Errorf("the deletion of a missing chain: %v, want %v", err, unix.ENOENT)
		}
		must(t, conn.Transact(add(1001))) // by another connection
		if n := chains(); n != 1001 {
			t.Errorf("%d chains after a change that failed and 1001", n)
		}
		return nil
	})
}
