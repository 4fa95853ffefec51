package load

import (
	"bufio"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"unnest.io/unnest/internal/measure/workload"
)

// A client tells the server in a first line what a connection is for, and the size of the
// messages: "echo 64". Datagrams are echoed as they are.
const (
	modeEcho    = "echo"    // of each message
	modeConnect = "connect" // of one message; then the server closes the connection
	modeStream  = "stream"  // no answers
	modeStat    = "stat"    // a MachineReading as JSON for each line
)

const peerKind = "message"

type peerClient struct {
	job     Job
	mode    string
	conn    net.Conn
	out, in []byte
}

func peerClients(mode string) func(Job) connector {
	return func(j Job) connector {
		return func(int) client {
			c := &peerClient{job: j, mode: mode, out: make([]byte, j.Size), in: make([]byte, j.Size)}
			if j.Protocol == string(workload.UDP) {
				return &datagramClient{c}
			}
			return c
		}
	}
}

// prepare connects. All messages have to be answered until the end of the load.
func (c *peerClient) prepare(ctx context.Context) (err error) {
	if c.mode == modeConnect {
		return nil
	}
	c.conn, err = dialPeer(ctx, c.job, "tcp", c.mode)
	return err
}

// dialPeer connects to the server, and tells it what the connection is for. For a moment it
// tries again when it is refused: the rules of a Service come later than its pods.
func dialPeer(ctx context.Context, j Job, network, mode string) (net.Conn, error) {
	begin := time.Now()
	for {
		conn, err := (&net.Dialer{Timeout: answerTimeout}).DialContext(ctx, network, j.Target)
		if err != nil && time.Since(begin) < answerTimeout && ctx.Err() == nil {
			time.Sleep(100 * time.Millisecond)
			continue
		}
		if err == nil {
			err = conn.SetDeadline(begin.Add(2*answerTimeout + j.Warmup + j.Duration))
		}
		if err == nil && mode != "" {
			_, err = fmt.Fprintf(conn, "%s %d\n", mode, j.Size)
		}
		return conn, err
	}
}

func (c *peerClient) send(n int) (string, error) {
	binary.BigEndian.PutUint64(c.out, uint64(n))
	switch c.mode {
	case modeStream:
		_, err := c.conn.Write(c.out)
		return peerKind, err
	case modeConnect:
		return peerKind, c.once()
	}
	if _, err := c.conn.Write(c.out); err != nil {
		return "", err
	}
	return peerKind, c.receive(c.conn)
}

// receive reads an echo and checks it.
func (c *peerClient) receive(from io.Reader) error {
	if _, err := io.ReadFull(from, c.in); err != nil {
		return fmt.Errorf("read the echo: %w", err)
	}
	if string(c.in) != string(c.out) {
		return fmt.Errorf("read the echo: %w", errWrong)
	}
	return nil
}

// once connects, sends a message and waits for its echo. The server closes the connection first,
// so that the client's port is free at once.
func (c *peerClient) once() error {
	conn, err := net.DialTimeout("tcp", c.job.Target, answerTimeout)
	if err != nil {
		return err
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(answerTimeout)); err != nil {
		return err
	}
	if _, err := conn.Write(append(fmt.Appendf(nil, "%s %d\n", c.mode, c.job.Size), c.out...)); err != nil {
		return err
	}
	if err := c.receive(conn); err != nil {
		return err
	}
	if _, err := conn.Read(c.in[:1]); !errors.Is(err, io.EOF) {
		return fmt.Errorf("wait for the end of the connection: %w", errors.Join(errWrong, err))
	}
	return nil
}

// datagramClient sends datagrams. One whose echo does not come within the patience is lost.
type datagramClient struct{ *peerClient }

func (c *datagramClient) prepare(ctx context.Context) (err error) {
	c.conn, err = dialPeer(ctx, c.job, "udp", "")
	return err
}

func (c *datagramClient) sendWithin(limit time.Duration) (int, string) {
	number := binary.BigEndian.Uint64(c.out) + 1
	binary.BigEndian.PutUint64(c.out, number)
	if err := c.conn.SetDeadline(time.Now().Add(limit)); err != nil {
		return 0, causeOf(err)
	}
	if _, err := c.conn.Write(c.out); err != nil {
		return 0, causeOf(err)
	}
	for {
		n, err := c.conn.Read(c.in)
		switch {
		case err != nil:
			return 0, causeOf(err)
		case n == len(c.in) && binary.BigEndian.Uint64(c.in) < number:
			continue // of a datagram that was late
		case string(c.in[:n]) != string(c.out):
			return 0, workload.Wrong
		}
		return 2 * n, ""
	}
}

// machines reads what the kernels of both peers count.
type machines struct {
	conn    net.Conn
	answers *bufio.Reader
}

// dialMachines returns nil unless the job is between two peers.
func dialMachines(ctx context.Context, j Job) (*machines, error) {
	if !j.Peer {
		return nil, nil
	}
	conn, err := dialPeer(ctx, j, "tcp", modeStat)
	if err != nil {
		return nil, err
	}
	return &machines{conn, bufio.NewReader(conn)}, nil
}

func (m *machines) read() ([]workload.MachineReading, error) {
	if m == nil {
		return nil, nil
	}
	own, err := readMachine()
	if err != nil {
		return nil, err
	}
	if _, err := io.WriteString(m.conn, "\n"); err != nil {
		return nil, err
	}
	line, err := m.answers.ReadBytes('\n')
	if err != nil {
		return nil, fmt.Errorf("read the CPU time of the server's machine: %w", err)
	}
	var other workload.MachineReading
	if err := json.Unmarshal(line, &other); err != nil || other.Boot == "" {
		return nil, fmt.Errorf("read the CPU time of the server's machine: it answers %q (%w)", line, errors.Join(errWrong, err))
	}
	return []workload.MachineReading{own, other}, nil
}
