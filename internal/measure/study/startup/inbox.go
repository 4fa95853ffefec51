package startup

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"time"
)

// inbox receives the messages of containers, one per connection.
type inbox struct {
	listener net.Listener
	messages chan message
}

type message struct {
	text    string
	arrived time.Time // of its first byte
}

// The limits of messages.
const (
	messageSize    = 256 // bytes
	messageTimeout = 10 * time.Second
	maxMessages    = 16 // that nobody waits for
)

// openInbox listens on address in the network namespace of the calling thread.
func openInbox(address string) (*inbox, error) {
	l, err := net.Listen("tcp", address)
	if err != nil {
		return nil, fmt.Errorf("listen for containers' messages: %w", err)
	}
	i := &inbox{l, make(chan message, maxMessages)}
	go i.serve()
	return i, nil
}

func (i *inbox) serve() {
	for {
		conn, err := i.listener.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err == nil {
			go i.receive(conn)
		}
	}
}

// receive reads one message. It drops one that does not fit into the channel.
func (i *inbox) receive(conn net.Conn) {
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(messageTimeout))
	first := make([]byte, messageSize)
	n, err := conn.Read(first)
	arrived := time.Now()
	if err != nil {
		return
	}
	rest, _ := io.ReadAll(io.LimitReader(conn, messageSize))
	select {
	case i.messages <- message{strings.TrimSpace(string(first[:n]) + string(rest)), arrived}:
	default:
	}
}

// await returns the arrival time of the message text. It drops others, of containers
// that were given up.
func (i *inbox) await(ctx context.Context, text string) (time.Time, error) {
	for {
		select {
		case m := <-i.messages:
			if m.text == text {
				return m.arrived, nil
			}
		case <-ctx.Done():
			return time.Time{}, fmt.Errorf("wait for the message of container %s: %w", text, context.Cause(ctx))
		}
	}
}

func (i *inbox) close() error { return i.listener.Close() }
