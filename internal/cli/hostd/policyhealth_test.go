package hostd

import (
	"context"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/credentials/insecure"
	grpcstatus "google.golang.org/grpc/status"

	"unnest.io/unnest/internal/hostapi/hostdpb"
)

// policyDaemon opens streams that give answers, or fails.
type policyDaemon struct {
	err     error
	answers chan error // nil: an answer
}

func (d *policyDaemon) Apply(context.Context, ...grpc.CallOption) (hostdpb.HostPolicy_ApplyClient, error) {
	return answered{answers: d.answers}, d.err
}

type answered struct {
	hostdpb.HostPolicy_ApplyClient
	answers chan error
}

func (a answered) Recv() (*hostdpb.ApplyResponse, error) {
	return &hostdpb.ApplyResponse{}, <-a.answers
}

// Policies are in force from the first answer of the daemon to the end of the stream.
func TestPolicyHealth(t *testing.T) {
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := free.Addr().String()
	if err := free.Close(); err != nil {
		t.Fatal(err)
	}
	daemon := &policyDaemon{answers: make(chan error, 1)}
	h := newPolicyHealth(daemon, &x509.Certificate{NotAfter: time.Now().Add(time.Hour)})
	stop, err := h.serve(t.Context(), address)
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	want := func(when string, code int, text string) {
		t.Helper()
		answer, err := http.Get("http://" + address + "/healthz")
		if err != nil {
			t.Fatal(err)
		}
		defer answer.Body.Close()
		body, err := io.ReadAll(answer.Body)
		if err != nil || answer.StatusCode != code || strings.TrimSpace(string(body)) != text {
			t.Errorf("%s: got %s, %q, %v; want %d, %q", when, answer.Status, body, err, code, text)
		}
	}
	want("at first", 503, "no policies have been sent yet")
	stream, err := h.Apply(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	want("before the answer", 503, "no policies have been sent yet")
	for _, s := range []struct {
		answer error
		code   int
		text   string
	}{{nil, 200, "policies are in force"}, {errors.New("revoked"), 503, "revoked"}} {
		daemon.answers <- s.answer
		if _, err := stream.Recv(); !errors.Is(err, s.answer) {
			t.Errorf("got %v, want %v", err, s.answer)
		}
		want("after an answer", s.code, s.text)
	}
	daemon.err = errors.New("no daemon")
	if _, err := h.Apply(t.Context()); err == nil {
		t.Error("got no error")
	}
	want("without a daemon", 503, "no daemon")
}

// A client whose own certificate has expired says so and ends, as one whose certificate the daemon refuses: the handshake would fail for ever, as if
// the daemon were not there.
func TestPolicyClientExpires(t *testing.T) {
	h := newPolicyHealth(&policyDaemon{}, &x509.Certificate{NotAfter: time.Now().Add(-time.Hour), URIs: []*url.URL{{Scheme: "unnest", Host: "policy", Path: "/shop"}}})
	_, err := h.Apply(t.Context())
	if grpcstatus.Code(err) != codes.Unauthenticated || !strings.Contains(err.Error(), "certificate of the policy client of tenant shop expired on ") {
		t.Errorf("got %v", err)
	}
}

// The connection to the daemon leads through no proxy. The process reads the proxy from its environment once, so it is another one.
func TestPolicyRunUsesNoProxy(t *testing.T) {
	const variable = "TEST_POLICY_SERVER"
	if server := os.Getenv(variable); server != "" {
		conn, err := dialDaemon(server, insecure.NewCredentials())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		conn.Connect()
		conn.WaitForStateChange(t.Context(), connectivity.Idle)
		conn.WaitForStateChange(t.Context(), connectivity.Connecting)
		return
	}
	asked := make(chan string, 10)
	listen := func(name string) (port string) {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { l.Close() })
		go func() {
			for {
				conn, err := l.Accept()
				if err != nil {
					return
				}
				asked <- name
				conn.Close()
			}
		}()
		_, port, _ = net.SplitHostPort(l.Addr().String())
		return port
	}
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+t.Name()+"$")
	// Go uses no proxy for 127.0.0.1, but for 0.0.0.0, which is this machine, too.
	cmd.Env = append(os.Environ(), variable+"=0.0.0.0:"+listen("daemon"), "HTTPS_PROXY=http://127.0.0.1:"+listen("proxy"), "NO_PROXY=", "no_proxy=")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if got := <-asked; got != "daemon" {
		t.Errorf("the connection leads to the %s", got)
	}
}
