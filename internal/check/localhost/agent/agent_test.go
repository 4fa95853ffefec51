package agent

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// newClient returns a client of an agent in this process, which ends with the test.
func newClient(t *testing.T) *Client {
	t.Helper()
	in, requests := io.Pipe()
	answers, out := io.Pipe()
	ended := make(chan error, 1)
	go func() {
		ended <- Execute(context.WithoutCancel(t.Context()), in, out)
		out.Close()
	}()
	t.Cleanup(func() {
		requests.Close()
		if err := <-ended; err != nil {
			t.Errorf("the agent ended with %v", err)
		}
	})
	return NewClient(answers, requests, 3*time.Second)
}

// executed sends a request that must succeed.
func executed[A any](t *testing.T, c *Client, r Request[A]) A {
	t.Helper()
	answer, err := Do(t.Context(), c, r)
	if err != nil {
		t.Fatal(err)
	}
	return answer
}

// exchanged sends lines to an agent and returns its replies.
func exchanged(t *testing.T, lines string) ([]string, error) {
	t.Helper()
	var out bytes.Buffer
	in, requests := io.Pipe()
	ended := make(chan error, 1)
	go func() { ended <- Execute(t.Context(), in, &out) }()
	if _, err := io.WriteString(requests, lines); err != nil {
		t.Fatal(err)
	}
	requests.Close()
	err := <-ended
	return strings.Split(strings.TrimSpace(out.String()), "\n"), err
}

// The protocol is JSON lines. An agent refuses what it does not know.
func TestProtocol(t *testing.T) {
	for _, c := range []struct{ line, want string }{
		{`{"id":7,"do":"look","patience_ns":1,"with":{"programs":["no-such-program"]}}`, `{"id":7,"answer":["no-such-program"]}`},
		{`{"id":8,"do":"fly","with":{}}`, `{"id":8,"error":{"code":"error","text":"unknown request \"fly\": the agent is of another version"}}`},
		{`{"id":9,"do":"stop","with":{"handle":3}}`, `{"id":9,"error":{"code":"error","text":"stop: there is no handle 3"}}`},
		{`{"id":10,"do":"stop","with":{"hand":3}}`, `{"id":10,"error":{"code":"error","text":"read request stop: json: unknown field \"hand\": the agent is of another version"}}`},
	} {
		got, err := exchanged(t, "\n"+c.line+"\n")
		if err != nil || len(got) != 1 || got[0] != c.want {
			t.Errorf("%s: got %q, %v; want %s", c.line, got, err, c.want)
		}
	}
	if _, err := exchanged(t, "hello\n"); err == nil || !strings.Contains(err.Error(), "read a request") {
		t.Errorf("input that is not JSON: got %v", err)
	}
}

func TestEveryRequestHasAHandler(t *testing.T) {
	if len(handlers) != 21 || len(names) != 21 {
		t.Errorf("%d handlers, %d types of requests, want 21: %v", len(handlers), len(names), names)
	}
}

func TestErrorsHaveCodes(t *testing.T) {
	c := newClient(t)
	bound := executed(t, c, Bind{Network: "tcp4", Address: "127.0.0.1:0", Times: 1})
	_, err := Do(t.Context(), c, Bind{Network: "tcp4", Address: bound.Addresses[0], Times: 1})
	var why *Error
	if !errors.As(err, &why) || why.Code != "EADDRINUSE" {
		t.Errorf("got %v, want EADDRINUSE", err)
	}
	executed(t, c, Stop{Handle: bound.Handle})
	if got := executed(t, c, Connect{Network: "tcp4", Address: bound.Addresses[0], Times: 2, Message: 1}); len(got) != 2 || got[0].Code != "ECONNREFUSED" {
		t.Errorf("got %+v, want ECONNREFUSED", got)
	}
	if _, err := Do(t.Context(), c, Serve{Network: "udp4", Address: "127.0.0.1:0", Kind: Tally}); err == nil || !strings.Contains(err.Error(), `unknown kind of UDP server "tally"`) {
		t.Errorf("got %v", err)
	}
}

func TestCodeOf(t *testing.T) {
	for _, c := range []struct {
		err  error
		want string
	}{
		{nil, ""},
		{io.EOF, End},
		{fmt.Errorf("read: %w", io.ErrUnexpectedEOF), End},
		{os.ErrDeadlineExceeded, Timeout},
		{context.DeadlineExceeded, Timeout},
		{&net.OpError{Op: "dial", Err: os.NewSyscallError("connect", syscall.ECONNREFUSED)}, "ECONNREFUSED"},
		{syscall.ETIMEDOUT, Timeout},
		{mismatch{"other bytes"}, Mismatch},
		{errors.New("anything"), "error"},
	} {
		if got := codeOf(c.err); got != c.want {
			t.Errorf("%v: got %q, want %q", c.err, got, c.want)
		}
	}
}

// answerBadly starts a UDP server with a fault.
func answerBadly(t *testing.T, answer func(c net.PacketConn, content []byte, to net.Addr)) string {
	t.Helper()
	c, err := net.ListenPacket("udp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	go func() {
		for buffer := make([]byte, 1<<16); ; {
			n, from, err := c.ReadFrom(buffer)
			if err != nil {
				return
			}
			answer(c, buffer[:n], from)
		}
	}()
	return c.LocalAddr().String()
}

func TestDatagramFaultsAreDetected(t *testing.T) {
	client := newClient(t)
	for _, c := range []struct {
		name    string
		answer  func(c net.PacketConn, content []byte, to net.Addr)
		request Datagrams
		want    []string // codes
	}{
		{"twice", func(c net.PacketConn, content []byte, to net.Addr) {
			for range 2 {
				_, _ = c.WriteTo(content, to)
			}
		}, Datagrams{Connected: true, Sizes: []int{10}}, []string{"", Surplus}},
		{"changed", func(c net.PacketConn, content []byte, to net.Addr) {
			content[len(content)-1]++
			_, _ = c.WriteTo(content, to)
		}, Datagrams{Connected: true, Sizes: []int{10, 65507}}, []string{Mismatch, Mismatch}},
		{"cut", func(c net.PacketConn, content []byte, to net.Addr) {
			_, _ = c.WriteTo(content[:len(content)-1], to)
		}, Datagrams{Sizes: []int{1500}}, []string{Mismatch}},
		{"from elsewhere", func(_ net.PacketConn, content []byte, to net.Addr) {
			if other, err := net.Dial("udp4", to.String()); err == nil {
				_, _ = other.Write(content)
				other.Close()
			}
		}, Datagrams{Sizes: []int{10}}, []string{Mismatch}},
		{"well", func(c net.PacketConn, content []byte, to net.Addr) { _, _ = c.WriteTo(content, to) },
			Datagrams{Sizes: []int{0, 10}}, []string{"", ""}},
	} {
		c.request.Network, c.request.Address = "udp4", answerBadly(t, c.answer)
		var codes []string
		for _, a := range executed(t, client, c.request) {
			codes = append(codes, a.Code)
		}
		if !slices.Equal(codes, c.want) {
			t.Errorf("%s: got %q, want %q", c.name, codes, c.want)
		}
	}
}

// streamBadly starts a TCP server that handles one connection after the other with talk.
func streamBadly(t *testing.T, talk func(net.Conn)) string {
	t.Helper()
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			talk(c)
			c.Close()
		}
	}()
	return l.Addr().String()
}

func TestStreamFaultsAreDetected(t *testing.T) {
	client := newClient(t)
	for _, c := range []struct {
		name string
		talk func(net.Conn)
		want string
	}{
		{"changed", func(c net.Conn) {
			b := make([]byte, 10)
			_, _ = io.ReadFull(c, b)
			b[5]++
			_, _ = c.Write(b)
		}, Mismatch},
		{"ended early", func(c net.Conn) { _, _ = io.CopyN(c, c, 5); _, _ = io.CopyN(io.Discard, c, 5) }, End},
		{"reset", func(c net.Conn) { _, _ = io.CopyN(io.Discard, c, 5) }, "ECONNRESET"},
		{"well", func(c net.Conn) { _, _ = io.CopyN(c, c, 10) }, ""},
	} {
		got := executed(t, client, Connect{Network: "tcp4", Address: streamBadly(t, c.talk), Times: 1, Message: 10})
		if len(got) != 1 || got[0].Code != c.want {
			t.Errorf("%s: got %+v, want %q", c.name, got, c.want)
		}
	}
	// A bulk transfer in which one byte changes.
	address := streamBadly(t, func(c net.Conn) {
		_, _ = io.CopyN(c, c, 1000)
		b := make([]byte, 1)
		_, _ = io.ReadFull(c, b)
		_, _ = c.Write([]byte{b[0] + 1})
		_, _ = io.Copy(c, c)
	})
	if got := executed(t, client, Transfer{Network: "tcp4", Address: address, Kind: Echo, Size: 1 << 20}); got.Received != 1<<20 || got.ReceivedSum == got.SentSum {
		t.Errorf("a byte was changed: got %+v", got)
	}
	address = streamBadly(t, func(c net.Conn) {
		_, _ = io.CopyN(io.Discard, c, 8)
		_, _ = c.Write(make([]byte, 1000))
	})
	if got := executed(t, client, Transfer{Network: "tcp4", Address: address, Kind: Source, Size: 1000}); got.Received != 1000 || got.ReceivedSum == StreamSum(1000) {
		t.Errorf("zeros came instead of the source's stream: got %+v", got)
	}
}

// The counts and checksums of servers and clients agree.
func TestTransfers(t *testing.T) {
	client := newClient(t)
	const size = 3<<20 + 1
	serve := func(k Kind) Served {
		return executed(t, client, Serve{Network: "tcp4", Address: "127.0.0.1:0", Kind: k, Name: "me"})
	}
	tally := executed(t, client, Transfer{Network: "tcp4", Address: serve(Tally).Address, Kind: Tally, Size: size})
	if tally.Sent != size || tally.SentSum != StreamSum(size) || tally.Said != TallyText(size, StreamSum(size)) {
		t.Errorf("tally: got %+v", tally)
	}
	source := executed(t, client, Transfer{Network: "tcp4", Address: serve(Source).Address, Kind: Source, Size: size})
	if source.Received != size || source.ReceivedSum != StreamSum(size) {
		t.Errorf("source: got %+v", source)
	}
	s := serve(Greet)
	greet := executed(t, client, Transfer{Network: "tcp4", Address: s.Address, Kind: Greet, Size: size})
	for end := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		seen := executed(t, client, Report{Handle: s.Handle})
		if greet.Said == "me" && len(seen.Conns) == 1 && seen.Conns[0].Sum == StreamSum(size) && seen.Conns[0].End == End {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("greet: got %+v, the server saw %+v", greet, seen)
		}
	}
}

// The agent removes the directory of a tool, however the tool ends, and stops the tool.
func TestRun(t *testing.T) {
	tmp := t.TempDir()
	t.Setenv("TMPDIR", tmp)
	client := newClient(t)
	ran := executed(t, client, Run{Args: []string{"sh", "-c", "pwd; cat {dir}/f"}, Files: map[string]string{"f": "in {dir}"}})
	where, content, _ := strings.Cut(ran.Output, "\n")
	if !strings.HasPrefix(where, tmp) || content != "in "+where {
		t.Errorf("got %q", ran.Output)
	}
	for _, c := range []struct {
		request Run
		want    string
	}{
		{Run{Args: []string{"sh", "-c", "echo no config >&2; exit 3"}}, "sh: exit status 3: no config"},
		{Run{Args: []string{"sh", "-c", "echo port taken >&2; exit 1"}, Ready: "127.0.0.1:1"}, "sh ended early: exit status 1: port taken"},
		{Run{Args: []string{"no-such-program"}}, "start no-such-program: "},
	} {
		if _, err := Do(t.Context(), client, c.request); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q: got %v, want %q", c.request.Args, err, c.want)
		}
	}
	address := streamBadly(t, func(net.Conn) {})
	left := executed(t, client, Run{Args: []string{"sh", "-c", "echo $$ >pid; sleep 61.25"}, Ready: address})
	if entries, err := os.ReadDir(tmp); err != nil || len(entries) != 1 {
		t.Errorf("got %v, %v; want the directory of the running tool", entries, err)
	}
	executed(t, client, Stop{Handle: left.Handle})
	if entries, err := os.ReadDir(tmp); err != nil || len(entries) != 0 {
		t.Errorf("after Stop: got %v, %v; want no directory", entries, err)
	}
}

func TestSentBytes(t *testing.T) {
	text, err := os.ReadFile("testdata/net-dev.txt")
	if err != nil {
		t.Fatal(err)
	}
	if got, err := sentBytes(string(text)); err != nil || got != 4331754 {
		t.Errorf("got %d, %v; want the bytes that eth0 has sent", got, err)
	}
	for _, bad := range []string{"a\nb\neth0: 1 2 3", "a\nb\neth0: 1 2 3 4 5 6 7 8 x 10"} {
		if got, err := sentBytes(bad); err == nil {
			t.Errorf("%q: got %d", bad, got)
		}
	}
}

// A reply may arrive late, or never.
func TestLost(t *testing.T) {
	in, out := io.Pipe()
	c := NewClient(in, io.Discard, time.Second)
	why := errors.New("too late")
	ctx, cancel := context.WithTimeoutCause(t.Context(), 10*time.Millisecond, why)
	defer cancel()
	if _, err := Do(ctx, c, About{}); !errors.Is(err, why) {
		t.Errorf("got %v, want the cause", err)
	}
	if err := json.NewEncoder(out).Encode(reply{ID: 1, Answer: []byte("{}")}); err != nil { // to a request that has timed out
		t.Fatal(err)
	}
	out.Close()
	if _, err := Do(t.Context(), c, About{}); !errors.Is(err, ErrLost) {
		t.Errorf("got %v, want ErrLost", err)
	}
}
