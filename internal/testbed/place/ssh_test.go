package place

import (
	"context"
	"errors"
	"net"
	"strings"
	"testing"
	"time"
)

func dialTCP(ctx context.Context, network, address string) (net.Conn, error) {
	return (&net.Dialer{}).DialContext(ctx, network, address)
}

// A host with an unexpected key is refused.
func TestSSHWrongHostKey(t *testing.T) {
	s := newServer(t)
	p, err := DialSSH(t.Context(), "guest node1", s.listen.Addr().String(), dialTCP, s.clientConfig(newKey(t).PublicKey()))
	if p != nil || err == nil || !strings.Contains(err.Error(), "log in to guest node1") || !strings.Contains(err.Error(), "host key mismatch") {
		t.Errorf("got %v, %v; want the host key refused", p, err)
	}
}

func TestSSHNobodyThere(t *testing.T) {
	s := newServer(t)
	s.hangUp()
	_, err := DialSSH(t.Context(), "guest node1", s.listen.Addr().String(), dialTCP, s.clientConfig(s.key))
	if err == nil || !strings.Contains(err.Error(), "reach guest node1: ") {
		t.Errorf("got %v; want an error that names the place", err)
	}
}

// A server that accepts the connection and sends nothing blocks the caller neither
// beyond the time limit of the configuration nor beyond ctx.
func TestSSHSilentServer(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	s := newServer(t)
	why := errors.New("told to stop")
	tests := []struct {
		name    string
		timeout time.Duration
		cancel  bool
		want    error
	}{
		{"time limit", 100 * time.Millisecond, false, context.DeadlineExceeded},
		{"context", time.Hour, true, why},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			config := s.clientConfig(s.key)
			config.Timeout = tt.timeout
			ctx, cancel := context.WithCancelCause(t.Context())
			defer cancel(nil)
			if tt.cancel {
				time.AfterFunc(100*time.Millisecond, func() { cancel(why) })
			}
			done := make(chan error, 1)
			go func() {
				_, err := DialSSH(ctx, "guest node1", listener.Addr().String(), dialTCP, config)
				done <- err
			}()
			select {
			case err := <-done:
				if !errors.Is(err, tt.want) || !strings.Contains(err.Error(), "log in to guest node1") {
					t.Errorf("got %v, want %v", err, tt.want)
				}
			case <-time.After(patience):
				t.Error("the login goes on and on")
				cancel(why)
				t.Logf("it ends with: %v", <-done)
			}
		})
	}
}

func TestSSHConnectionLost(t *testing.T) {
	s := newServer(t)
	p, _ := s.dial(t)
	process, err := p.Start(t.Context(), Command{Args: []string{"sleep", "0.5"}})
	if err != nil {
		t.Fatal(err)
	}
	if p.Lost() {
		t.Error("a connection that works is lost")
	}
	s.hangUp()
	err = process.Wait()
	assertLost(t, p)
	var exit *ExitError
	if err == nil || errors.As(err, &exit) || !strings.Contains(err.Error(), "sleep on guest node1: connection lost") {
		t.Errorf("got %v; want the connection lost", err)
	}
	err = Run(t.Context(), p, "true")
	if err == nil || !strings.Contains(err.Error(), "start true on guest node1") {
		t.Errorf("got %v; want an error that names program and place", err)
	}
}

// Who cannot start a command because the connection ends finds it lost at once.
func TestSSHLostWhileStarting(t *testing.T) {
	for range 20 {
		s := newServer(t)
		p, _ := s.dial(t)
		hung := make(chan struct{})
		go func() { s.hangUp(); close(hung) }()
		var err error
		for err == nil {
			err = Run(t.Context(), p, "true")
		}
		<-hung
		if err = Run(t.Context(), p, "true"); err == nil || !p.Lost() {
			t.Fatalf("lost: %v after %v", p.Lost(), err)
		}
	}
}

// assertLost checks that the loss of the connection is noticed soon.
func assertLost(t *testing.T, p *SSH) {
	t.Helper()
	for end := time.Now().Add(patience); !p.Lost(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Error("the loss of the connection was not noticed")
			return
		}
	}
}

func TestSSHClose(t *testing.T) {
	p, _ := newServer(t).dial(t)
	process, err := p.Start(t.Context(), Command{Args: []string{"sleep", "0.5"}})
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(p.Close(), p.Close()); err != nil {
		t.Errorf("close, twice: %v", err)
	}
	if err := process.Wait(); err == nil {
		t.Error("the command outlived the connection")
	}
}

// A machine that does not answer does not block a caller that has stopped waiting.
func TestSSHFrozenMachine(t *testing.T) {
	t.Run("while a command runs", func(t *testing.T) {
		p, line := newServer(t).dial(t)
		p.answer = answerTime{200 * time.Millisecond, 200 * time.Millisecond}
		ctx, cancel := context.WithCancel(t.Context())
		process, err := p.Start(ctx, Command{Args: []string{"sleep", "0.5"}})
		if err != nil {
			t.Fatal(err)
		}
		line.freeze()
		cancel()
		assertEnds(t, line, process.Wait)
		assertLost(t, p)
	})
	t.Run("when a command is to start", func(t *testing.T) {
		p, line := newServer(t).dial(t)
		p.answer = answerTime{200 * time.Millisecond, 200 * time.Millisecond}
		line.freeze()
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		assertEnds(t, line, func() error { return Run(ctx, p, "true") })
	})
	t.Run("after a time limit it may be busy", func(t *testing.T) {
		p, line := newServer(t).dial(t)
		p.answer = answerTime{stopped: 10 * time.Millisecond, late: time.Minute}
		const limit = 3 * time.Second
		ctx, cancel := context.WithTimeout(t.Context(), limit)
		defer cancel()
		process, err := p.Start(ctx, Command{Args: []string{"sleep", "181.25"}})
		if err != nil {
			t.Fatal(err)
		}
		line.busy(limit + 400*time.Millisecond)
		assertEnds(t, line, process.Wait)
		if p.Lost() {
			t.Error("the connection was given up")
		}
	})
	t.Run("a patient caller waits", func(t *testing.T) {
		p, line := newServer(t).dial(t)
		p.answer = answerTime{stopped: 10 * time.Millisecond, late: time.Minute}
		ctx, cancel := context.WithCancel(t.Context())
		process, err := p.Patient().Start(ctx, Command{Args: []string{"sleep", "181.25"}})
		if err != nil {
			t.Fatal(err)
		}
		line.busy(400 * time.Millisecond)
		cancel()
		assertEnds(t, line, process.Wait)
		if p.Lost() {
			t.Error("the connection was given up")
		}
	})
	t.Run("nobody waits for a command whose work is done", func(t *testing.T) {
		p, line := newServer(t).dial(t)
		p.answer = answerTime{stopped: 10 * time.Millisecond, late: time.Minute}
		ctx, done := UntilDone(t.Context())
		process, err := p.Start(ctx, Command{Args: []string{"sleep", "181.25"}})
		if err != nil {
			t.Fatal(err)
		}
		line.busy(400 * time.Millisecond)
		done()
		assertEnds(t, line, process.Wait)
		if p.Lost() {
			t.Error("the connection was given up")
		}
	})
	t.Run("while a command runs in a container", func(t *testing.T) {
		p, line := newServer(t).dial(t)
		p.answer = answerTime{200 * time.Millisecond, 200 * time.Millisecond}
		ctx, cancel := context.WithCancel(t.Context())
		process, err := Container{Place: p, Engine: newEngine(t), Name: "web"}.Start(ctx, Command{Args: []string{"sleep", "0.5"}})
		if err != nil {
			t.Fatal(err)
		}
		line.freeze()
		cancel()
		assertEnds(t, line, process.Wait)
	})
}

// assertEnds checks that wait returns an error within the limits for killing.
func assertEnds(t *testing.T, line *freezable, wait func() error) {
	t.Helper()
	done := make(chan error, 1)
	go func() { done <- wait() }()
	select {
	case err := <-done:
		if err == nil {
			t.Error("got no error from a machine that does not answer")
		}
	case <-time.After(patience):
		t.Error("waits for a machine that does not answer")
		line.Close()
		t.Logf("it ends with: %v", <-done)
	}
}
