package vm

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"errors"
	"io"
	"net"
	"slices"
	"testing"

	"golang.org/x/crypto/ssh"

	"unnest.io/unnest/internal/cli/terminal"
	"unnest.io/unnest/internal/cli/usage"
	"unnest.io/unnest/internal/testbed/place"
)

// The end of the guest's command is that of this one, and nothing is said twice.
func TestPassOn(t *testing.T) {
	lost := errors.New("connection lost")
	for _, tt := range []struct {
		name      string
		err, want error
		text      string
	}{
		{"well", nil, nil, ""},
		{"exit code", &place.ExitError{Place: "guest n", Args: []string{"sh"}, Code: 7, Stderr: "no"}, usage.Exit(7), "exit code 7"},
		{"killed", &place.ExitError{Place: "guest n", Args: []string{"sh"}, Code: -1, Stderr: "no"}, nil, "sh on guest n: killed"},
		{"lost", lost, lost, "connection lost"},
	} {
		err := passOn(tt.err)
		if tt.want != nil && !errors.Is(err, tt.want) || (err == nil) != (tt.text == "") || err != nil && err.Error() != tt.text {
			t.Errorf("%s: got %v, want %q", tt.name, err, tt.text)
		}
	}
}

func TestWords(t *testing.T) {
	for _, test := range []struct{ args, want []string }{
		{nil, nil},
		{[]string{"--"}, nil},
		{[]string{"hostname"}, []string{"sh", "-c", "hostname"}},
		{[]string{"--", "hostname; uptime"}, []string{"sh", "-c", "hostname; uptime"}},
		{[]string{"ls", "-l", "/a b"}, []string{"ls", "-l", "/a b"}},
		{[]string{"--", "ls", "--", "-l"}, []string{"ls", "--", "-l"}},
	} {
		if got := words(test.args); !slices.Equal(got, test.want) {
			t.Errorf("words(%q) = %q, want %q", test.args, got, test.want)
		}
	}
}

// A shell ends with the context of its command, in which a signal has arrived.
func TestShellInterrupted(t *testing.T) {
	_, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	signer, err := ssh.NewSignerFromKey(key)
	if err != nil {
		t.Fatal(err)
	}
	ctx, interrupt := context.WithCancelCause(t.Context())
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	go serveShell(listener, signer, func() { interrupt(errors.New("interrupted")) })
	connection, err := place.DialSSH(t.Context(), "guest n", listener.Addr().String(), new(net.Dialer).DialContext,
		&ssh.ClientConfig{HostKeyCallback: ssh.FixedHostKey(signer.PublicKey())})
	if err != nil {
		t.Fatal(err)
	}
	in, typed := io.Pipe() // nobody types
	defer typed.Close()
	if err := shell(ctx, terminal.Streams{In: in, Out: io.Discard, Err: io.Discard}, connection); err == nil || err.Error() != "interrupted" {
		t.Errorf("got %v, want that it was interrupted", err)
	}
}

// serveShell accepts one connection and one session, whose shell does nothing.
func serveShell(listener net.Listener, signer ssh.Signer, started func()) {
	config := &ssh.ServerConfig{NoClientAuth: true}
	config.AddHostKey(signer)
	raw, err := listener.Accept()
	if err != nil {
		return
	}
	_, channels, requests, err := ssh.NewServerConn(raw, config)
	if err != nil {
		return
	}
	go ssh.DiscardRequests(requests)
	for c := range channels {
		_, requests, err := c.Accept()
		if err != nil {
			return
		}
		for r := range requests {
			_ = r.Reply(true, nil)
			if r.Type == "shell" {
				started()
			}
		}
	}
}
