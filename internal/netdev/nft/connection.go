package nft

import (
	"errors"
	"fmt"

	"github.com/google/nftables"
	"github.com/mdlayher/netlink"
	"github.com/vishvananda/netns"
)

// SendBuffer is the size of a transaction, in bytes: the kernel takes it as one message. One with
// ten thousand ports fits into it.
const SendBuffer = 64 << 20

const receiveBuffer = 128 << 20 // for the kernel's replies to it

// Connection applies transactions in one network namespace. It stays open between them,
// because closing waits until the kernel has freed what was deleted. It is not safe for
// concurrent use.
type Connection struct {
	ns   netns.NsHandle
	conn *nftables.Conn // for transactions; nil: not open
}

// Connect returns a Connection to the network namespace, which is the caller's to close.
func Connect(ns netns.NsHandle) *Connection { return &Connection{ns: ns} }

// Transact applies all changes that f adds, or none. After an error it closes the
// connection, which may hold replies that would be taken for those of the next transaction.
func (n *Connection) Transact(f func(*nftables.Conn) error) (err error) {
	if n.conn == nil {
		large := func(c *netlink.Conn) error {
			return errors.Join(c.SetWriteBuffer(SendBuffer), c.SetReadBuffer(receiveBuffer))
		}
		if n.conn, err = n.New(nftables.AsLasting(), nftables.WithSockOptions(large)); err != nil {
			return fmt.Errorf("open nftables: %w", err)
		}
	}
	if err = f(n.conn); err == nil {
		err = ledgerOf(n.ns).transact(n.conn.Flush)
	}
	if err != nil {
		err = errors.Join(err, n.Close())
	}
	return err
}

// Close closes the connection that Transact keeps open. The next Transact opens another.
func (n *Connection) Close() error {
	c := n.conn
	n.conn = nil
	if c == nil {
		return nil
	}
	return c.CloseLasting()
}

// DeleteTable deletes a table from the calling thread's network namespace, if it is there.
func DeleteTable(t *nftables.Table) error {
	c, err := nftables.New()
	if err != nil {
		return fmt.Errorf("open nftables: %w", err)
	}
	c.AddTable(t) // else there may be nothing to delete
	c.DelTable(t)
	if err := c.Flush(); err != nil {
		return fmt.Errorf("delete packet filter %s: %w", t.Name, err)
	}
	return nil
}

// New returns another connection to the network namespace, for reading.
func (n *Connection) New(options ...nftables.ConnOption) (c *nftables.Conn, err error) {
	err = WithNS(n.ns, func(fd int) error {
		if fd != 0 {
			options = append(options, nftables.WithNetNSFd(fd))
		}
		c, err = nftables.New(options...)
		return err
	})
	return c, err
}
