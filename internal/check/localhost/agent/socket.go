package agent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// receiveBuffer holds a burst of datagrams, in bytes.
const receiveBuffer = 16 << 20

// option is a socket option that is set before bind.
type option func(fd int) error

func flag(level, name int) option {
	return func(fd int) error { return unix.SetsockoptInt(fd, level, name, 1) }
}

func device(name string) option {
	return func(fd int) error {
		if name == "" {
			return nil
		}
		return unix.BindToDevice(fd, name)
	}
}

// receives sets a large receive buffer, beyond the system's limit if it is allowed to.
func receives(fd int) error {
	if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, receiveBuffer); errors.Is(err, unix.EPERM) {
		return unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUF, receiveBuffer)
	} else if err != nil {
		return err
	}
	return nil
}

// control is for net.Dialer and net.ListenConfig.
func control(options ...option) func(_, _ string, c syscall.RawConn) error {
	return func(_, _ string, c syscall.RawConn) error {
		return onFD(c, func(fd int) error {
			for _, o := range options {
				if err := o(fd); err != nil {
					return fmt.Errorf("set a socket option: %w", err)
				}
			}
			return nil
		})
	}
}

func onFD(c syscall.RawConn, do func(fd int) error) error {
	var err error
	if broken := c.Control(func(fd uintptr) { err = do(int(fd)) }); broken != nil {
		return broken
	}
	return err
}

// listenTCP keeps urgent bytes at their place in the stream. Package net sets SO_REUSEADDR.
func (j *job) listenTCP(o Serve) (*net.TCPListener, error) {
	c := net.ListenConfig{Control: control(device(o.Device), flag(unix.SOL_SOCKET, unix.SO_OOBINLINE))}
	c.SetMultipathTCP(o.Multipath)
	l, err := c.Listen(j.ctx, o.Network, o.Address)
	if err != nil {
		return nil, err
	}
	return l.(*net.TCPListener), nil
}

func (j *job) listenUDP(o Serve) (*net.UDPConn, error) {
	c := net.ListenConfig{Control: control(device(o.Device), receives)}
	p, err := c.ListenPacket(j.ctx, o.Network, o.Address)
	if err != nil {
		return nil, err
	}
	return p.(*net.UDPConn), nil
}

// setBacklog changes the backlog of a listening socket.
func setBacklog(l *net.TCPListener, backlog int) error {
	raw, err := l.SyscallConn()
	if err != nil {
		return err
	}
	return onFD(raw, func(fd int) error { return unix.Listen(fd, backlog) })
}

// target says where and how to connect.
type target struct {
	network, address, local, device string
	multipath, fastOpen             bool
	patience                        time.Duration // 0: the job's limit
}

func (j *job) dial(t target) (net.Conn, error) {
	options := []option{device(t.device)}
	d := net.Dialer{Timeout: t.patience}
	d.Timeout = cmp.Or(d.Timeout, j.limit())
	d.SetMultipathTCP(t.multipath)
	if t.local != "" {
		var err error
		if d.LocalAddr, err = addressOf(t.network, t.local); err != nil {
			return nil, err
		}
		options = append(options, flag(unix.SOL_SOCKET, unix.SO_REUSEADDR))
	}
	if t.fastOpen {
		options = append(options, flag(unix.IPPROTO_TCP, unix.TCP_FASTOPEN_CONNECT), flag(unix.IPPROTO_TCP, unix.TCP_FASTOPEN_NO_COOKIE))
	}
	if !isStream(t.network) {
		options = append(options, receives)
	}
	d.Control = control(options...)
	return d.DialContext(j.ctx, t.network, t.address)
}

// closing returns a function that closes c. The end of the agent closes c, too.
func (j *job) closing(c io.Closer) func() {
	done := context.AfterFunc(j.ctx, func() { _ = c.Close() })
	return func() {
		done()
		_ = c.Close()
	}
}

func addressOf(network, address string) (net.Addr, error) {
	if isStream(network) {
		return net.ResolveTCPAddr(network, address)
	}
	return net.ResolveUDPAddr(network, address)
}

// plain returns an address without the mapping of IPv4 into IPv6.
func plain(a netip.AddrPort) string {
	return netip.AddrPortFrom(a.Addr().Unmap(), a.Port()).String()
}
