package nft

import (
	"errors"
	"fmt"
	"io"

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
	ns     netns.NsHandle
	conn   *nftables.Conn // for transactions; nil: not open
	socket *netlink.Conn  // of conn
	failed error          // the last transaction
}

// Connect returns a Connection to the network namespace, which is the caller's to close.
func Connect(ns netns.NsHandle) *Connection { return &Connection{ns: ns} }

// Transact applies all changes that f adds, or none. After an error it closes the
// connection, which may hold replies that would be taken for those of the next transaction.
func (n *Connection) Transact(f func(*nftables.Conn) error) (err error) {
	if n.conn == nil {
		if n.socket, err = dial(n.ns); err == nil {
			err = errors.Join(n.socket.SetWriteBuffer(SendBuffer), n.socket.SetReadBuffer(receiveBuffer))
		}
		if err == nil {
			n.conn, err = nftables.New(nftables.AsLasting(), nftables.WithTestDial(n.send))
		}
		if err != nil {
			return errors.Join(fmt.Errorf("open nftables: %w", err), n.Close())
		}
	}
	if err = f(n.conn); err == nil {
		err = ledgerOf(n.ns).transact(func() error {
			err := n.conn.Flush()
			return errors.Join(err, n.failed)
		})
	}
	if err != nil {
		err = errors.Join(err, n.Close())
	}
	return err
}

// send sends a transaction and asks for one reply, to its last change. Package nftables asks for one to each, and for a copy of each
// rule: to read those takes longer than the transaction. The kernel replies to a change that fails in any case, and before that.
func (n *Connection) send(messages []netlink.Message) ([]netlink.Message, error) {
	for i := range messages {
		messages[i].Header.Flags &^= netlink.Acknowledge | netlink.Echo
	}
	messages[len(messages)-2].Header.Flags |= netlink.Acknowledge // the last message ends the transaction
	if _, n.failed = n.socket.SendMessages(messages); n.failed == nil {
		_, n.failed = n.socket.Receive()
	}
	return nil, io.EOF // no replies to n.conn
}

// Close closes the connection that Transact keeps open. The next Transact opens another.
func (n *Connection) Close() error {
	c := n.socket
	n.conn, n.socket, n.failed = nil, nil, nil
	if c == nil {
		return nil
	}
	return c.Close()
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
func (n *Connection) New() (c *nftables.Conn, err error) {
	err = WithNS(n.ns, func(fd int) (err error) {
		c, err = nftables.New(nftables.WithNetNSFd(fd))
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("open nftables: %w", err)
	}
	return c, nil
}
