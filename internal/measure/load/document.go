package load

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"time"

	"github.com/valyala/fasthttp"
	"golang.org/x/sys/unix"

	"unnest.io/unnest/internal/measure/workload"
)

// documentClient asks a web server for a document. It opens a connection for each request, as
// httperf does.
type documentClient struct {
	target   string
	dialer   net.Dialer
	request  fasthttp.Request
	response fasthttp.Response
	want     []byte
}

func documentClients(j Job) connector {
	want := numbers(j.Size)
	return func(i int) client {
		c := &documentClient{target: j.Target, want: want}
		if len(j.Sources) > 0 {
			c.dialer.LocalAddr = &net.TCPAddr{IP: net.ParseIP(j.Sources[i%len(j.Sources)])}
		}
		c.request.SetRequestURI("http://" + j.Target + workload.ApacheFile(j.Size))
		c.request.SetConnectionClose()
		return c
	}
}

// prepare does nothing: a server at its limit is a result, and its document is there.
func (c *documentClient) prepare(context.Context) error { return nil }

func (c *documentClient) send(int) (string, error) {
	_, err := c.exchange(time.Now().Add(answerTimeout))
	return httpGet, err
}

func (c *documentClient) sendWithin(limit time.Duration) (int, string) {
	n, err := c.exchange(time.Now().Add(limit))
	return n, causeOf(err)
}

var errWrong = errors.New("wrong answer")

// exchange sends the request, and returns the bytes that it and its answer had.
func (c *documentClient) exchange(deadline time.Time) (int, error) {
	c.dialer.Deadline = deadline
	dialed, err := c.dialer.Dial("tcp", c.target)
	if err != nil {
		return 0, err
	}
	conn := &countedConn{Conn: dialed}
	defer conn.Close()
	if err := conn.SetDeadline(deadline); err != nil {
		return 0, err
	}
	if err := c.ask(conn); err != nil {
		return conn.bytes, fmt.Errorf("GET %s: %w", c.request.URI(), err)
	}
	return conn.bytes, nil
}

// ask sends the request and checks the answer. The server closes the connection first, so that
// it, and not this client, has the port for a minute longer.
func (c *documentClient) ask(conn *countedConn) error {
	w := bufio.NewWriter(conn)
	if err := c.request.Write(w); err != nil {
		return err
	}
	if err := w.Flush(); err != nil {
		return err
	}
	r := bufio.NewReader(conn)
	if err := c.response.Read(r); err != nil {
		return err
	}
	if code, body := c.response.StatusCode(), c.response.Body(); code != fasthttp.StatusOK || !bytes.Equal(body, c.want) {
		return fmt.Errorf("%w: status %d with %d bytes, want the %d of the document", errWrong, code, len(body), len(c.want))
	}
	_, err := io.Copy(io.Discard, r)
	if errors.Is(err, unix.ECONNRESET) { // the answer has come
		err = nil
	}
	return err
}

// countedConn counts the bytes of a connection.
type countedConn struct {
	net.Conn
	bytes int
}

func (c *countedConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.bytes += n
	return n, err
}

func (c *countedConn) Write(p []byte) (int, error) {
	n, err := c.Conn.Write(p)
	c.bytes += n
	return n, err
}

// causeOf sorts the error of a request by its cause.
func causeOf(err error) string {
	switch {
	case err == nil:
		return ""
	case errors.Is(err, unix.ECONNREFUSED):
		return workload.Refused
	case errors.Is(err, unix.EMFILE), errors.Is(err, unix.ENFILE):
		return workload.Descriptors
	case errors.Is(err, unix.EADDRNOTAVAIL), errors.Is(err, unix.EADDRINUSE):
		return workload.Ports
	case errors.Is(err, errWrong):
		return workload.Wrong
	case errors.Is(err, os.ErrDeadlineExceeded), errors.Is(err, unix.ETIMEDOUT), errors.Is(err, context.DeadlineExceeded), isTimeout(err):
		return workload.TimedOut
	case errors.Is(err, unix.ECONNRESET), errors.Is(err, unix.EPIPE), errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return workload.Reset
	}
	return workload.OtherCause
}

func isTimeout(err error) bool {
	var timeout interface{ Timeout() bool } // fasthttp's is not a net.Error
	return errors.As(err, &timeout) && timeout.Timeout()
}
