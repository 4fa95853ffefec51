package place

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"errors"
	"io"
	"net"
	"os/exec"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/crypto/ssh"
	"golang.org/x/sys/unix"
)

// server is an SSH server in this process. It runs commands as others do: by a
// shell, in a session of their own, and it does not kill them.
type server struct {
	config *ssh.ServerConfig
	key    ssh.PublicKey
	listen net.Listener

	mu       sync.Mutex
	conns    []net.Conn
	commands int // that were started
	running  sync.WaitGroup
}

// newServer starts a server. The test fails when a command outlives it.
func newServer(t *testing.T) *server {
	t.Helper()
	key := newKey(t)
	s := &server{config: &ssh.ServerConfig{NoClientAuth: true}, key: key.PublicKey()}
	s.config.AddHostKey(key)
	var err error
	if s.listen, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
		t.Fatal(err)
	}
	go s.serve()
	t.Cleanup(func() {
		s.hangUp()
		ended := make(chan struct{})
		go func() { s.running.Wait(); close(ended) }()
		select {
		case <-ended:
		case <-time.After(patience):
			t.Error("a command is left on the machine")
		}
	})
	return s
}

func newKey(t *testing.T) ssh.Signer {
	t.Helper()
	_, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	signer, err := ssh.NewSignerFromKey(key)
	if err != nil {
		t.Fatal(err)
	}
	return signer
}

// hangUp disconnects the server from the network.
func (s *server) hangUp() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.listen.Close()
	for _, c := range s.conns {
		c.Close()
	}
}

func (s *server) serve() {
	for {
		conn, err := s.listen.Accept()
		if err != nil {
			return
		}
		s.mu.Lock()
		s.conns = append(s.conns, conn)
		s.mu.Unlock()
		go s.connection(conn)
	}
}

func (s *server) connection(conn net.Conn) {
	_, channels, requests, err := ssh.NewServerConn(conn, s.config)
	if err != nil {
		conn.Close()
		return
	}
	go ssh.DiscardRequests(requests)
	for c := range channels {
		if channel, requests, err := c.Accept(); err == nil {
			go s.session(channel, requests)
		}
	}
}

func (s *server) session(channel ssh.Channel, requests <-chan *ssh.Request) {
	for r := range requests {
		var exec struct{ Line string }
		if r.Type != "exec" || ssh.Unmarshal(r.Payload, &exec) != nil {
			_ = r.Reply(false, nil)
			continue
		}
		s.mu.Lock()
		s.commands++
		s.running.Add(1)
		s.mu.Unlock()
		_ = r.Reply(true, nil)
		go s.run(channel, exec.Line)
	}
}

func (s *server) run(channel ssh.Channel, line string) {
	defer s.running.Done()
	defer channel.Close()
	cmd := exec.Command("sh", "-c", line)
	cmd.Stdout, cmd.Stderr = channel, channel.Stderr()
	cmd.SysProcAttr = &unix.SysProcAttr{Setsid: true}
	stdin, err := cmd.StdinPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err == nil {
		go func() {
			_, _ = io.Copy(stdin, channel)
			stdin.Close()
		}()
		err = cmd.Wait()
	}
	var exit *exec.ExitError
	switch {
	case errors.As(err, &exit) && exit.ExitCode() < 0:
		_, _ = channel.SendRequest("exit-signal", false, ssh.Marshal(struct {
			Name    string
			Core    bool
			Message string
			Lang    string
		}{Name: "KILL"}))
	case err == nil || exit != nil:
		_, _ = channel.SendRequest("exit-status", false, ssh.Marshal(struct{ Code uint32 }{uint32(cmd.ProcessState.ExitCode())}))
	}
}

// dial connects to the server, over a connection that can be frozen.
func (s *server) dial(t *testing.T) (*SSH, *freezable) {
	t.Helper()
	var line *freezable
	dialer := func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := (&net.Dialer{}).DialContext(ctx, network, address)
		line = &freezable{Conn: conn, frozen: make(chan struct{}), closed: make(chan struct{})}
		return line, err
	}
	p, err := DialSSH(t.Context(), "guest node1", s.listen.Addr().String(), dialer, s.clientConfig(s.key))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Close() })
	return p, line
}

func (s *server) clientConfig(key ssh.PublicKey) *ssh.ClientConfig {
	return &ssh.ClientConfig{User: "root", HostKeyCallback: ssh.FixedHostKey(key), Timeout: patience}
}

// freezable is a connection to a machine that can stop answering: writes are lost and
// nothing comes back until it is closed. Or it delays its answers for some time.
type freezable struct {
	net.Conn
	frozen, closed chan struct{}
	once           sync.Once
	busyUntil      atomic.Int64 // in ns since 1970
}

func (f *freezable) busy(d time.Duration) { f.busyUntil.Store(time.Now().Add(d).UnixNano()) }

func (f *freezable) freeze() { close(f.frozen) }

func (f *freezable) isFrozen() bool {
	select {
	case <-f.frozen:
		return true
	default:
		return false
	}
}

func (f *freezable) Read(b []byte) (int, error) {
	n, err := f.Conn.Read(b)
	time.Sleep(time.Until(time.Unix(0, f.busyUntil.Load())))
	if f.isFrozen() {
		<-f.closed
		return 0, net.ErrClosed
	}
	return n, err
}

func (f *freezable) Write(b []byte) (int, error) {
	if f.isFrozen() {
		return len(b), nil
	}
	return f.Conn.Write(slices.Clone(b))
}

func (f *freezable) Close() error {
	f.once.Do(func() { close(f.closed) })
	return f.Conn.Close()
}
