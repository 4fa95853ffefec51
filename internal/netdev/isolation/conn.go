package isolation

import (
	"errors"
	"fmt"

	"github.com/google/nftables"
	"github.com/mdlayher/netlink"

	"unnest/internal/netdev/nft"
)

// sendBuffer holds a transaction with a thousand ports: the kernel takes it as one message.
const sendBuffer, receiveBuffer = 64 << 20, 128 << 20

// transact applies all changes that f adds to the connection, or none. It keeps the
// connection open, because closing waits until the kernel has freed what was deleted. After
// an error it closes the connection, which may hold replies.
func (t *Table) transact(f func(*nftables.Conn) error) (err error) {
	if t.conn == nil {
		large := func(c *netlink.Conn) error {
			return errors.Join(c.SetWriteBuffer(sendBuffer), c.SetReadBuffer(receiveBuffer))
		}
		if t.conn, err = t.connect(nftables.AsLasting(), nftables.WithSockOptions(large)); err != nil {
			return fmt.Errorf("open nftables: %w", err)
		}
	}
	if err = f(t.conn); err == nil {
		err = t.conn.Flush()
	}
	if err != nil {
		err = errors.Join(err, t.disconnect())
	}
	return err
}

func (t *Table) disconnect() error {
	c := t.conn
	t.conn = nil
	if c == nil {
		return nil
	}
	return c.CloseLasting()
}

func (t *Table) connect(options ...nftables.ConnOption) (c *nftables.Conn, err error) {
	err = nft.WithNS(t.ns, func(fd int) error {
		if fd != 0 {
			options = append(options, nftables.WithNetNSFd(fd))
		}
		c, err = nftables.New(options...)
		return err
	})
	return c, err
}

// Drop deletes the filter of an earlier process from the calling thread's network
// namespace.
func Drop() error {
	c, err := nftables.New()
	if err != nil {
		return fmt.Errorf("open nftables: %w", err)
	}
	c.AddTable(table) // else there may be nothing to delete
	c.DelTable(table)
	if err := c.Flush(); err != nil {
		return fmt.Errorf("delete packet filter %s: %w", table.Name, err)
	}
	return nil
}
