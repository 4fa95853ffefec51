package renewal

import (
	"context"
	"errors"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/peer"
	grpcstatus "google.golang.org/grpc/status"

	"unnest.io/unnest/internal/cni/cnitest"
	"unnest.io/unnest/internal/cni/hostclient"
	"unnest.io/unnest/internal/hostapi/hostdpb"
	"unnest.io/unnest/internal/hostapi/identity"
	"unnest.io/unnest/internal/hostapi/identity/identitytest"
)

// fakeDaemon renews certificates as the daemon does, and remembers whose it served.
type fakeDaemon struct {
	hostdpb.UnimplementedHostDaemonServer
	authority *identity.Authority
	renewals  atomic.Int32
	answer    func(*hostdpb.RenewResponse) (*hostdpb.RenewResponse, error) // nil: as it is
	seen      sync.Map                                                     // serial numbers of Status
}

func (f *fakeDaemon) Renew(ctx context.Context, r *hostdpb.RenewRequest) (*hostdpb.RenewResponse, error) {
	f.renewals.Add(1)
	time.Sleep(50 * time.Millisecond) // for a second renewal at the same time
	p, _ := peer.FromContext(ctx)
	c, err := f.authority.Renew("node1", p.AuthInfo.(credentials.TLSInfo).State.PeerCertificates[0], r.GetCertificateRequest())
	if err != nil {
		return nil, err
	}
	answer := &hostdpb.RenewResponse{Certificate: c.Raw}
	if f.answer != nil {
		return f.answer(answer)
	}
	return answer, nil
}

func (f *fakeDaemon) Status(ctx context.Context, _ *hostdpb.StatusRequest) (*hostdpb.StatusResponse, error) {
	p, _ := peer.FromContext(ctx)
	f.seen.Store(identity.Serial(p.AuthInfo.(credentials.TLSInfo).State.PeerCertificates[0]), true)
	return nil, grpcstatus.Error(codes.Unavailable, "the guest's VMM does not answer")
}

// world is a guest with credentials, and the daemon.
type world struct {
	t           *testing.T
	daemon      *fakeDaemon
	server      netip.AddrPort
	credentials string
	state       string
}

// newWorld returns a guest with a certificate of whose 24 hours some are left.
func newWorld(t *testing.T, left time.Duration) *world {
	t.Helper()
	lab := t.TempDir()
	c := identitytest.Issue(t, lab, "node1", time.Now().Add(left))
	a, err := identity.OpenAuthority(lab)
	if err != nil {
		t.Fatal(err)
	}
	w := &world{t: t, daemon: &fakeDaemon{authority: a}, credentials: t.TempDir(), state: filepath.Join(t.TempDir(), "run")}
	cnitest.Save(t, w.credentials, a, c)
	w.server, _ = cnitest.Serve(t, a, w.daemon)
	return w
}

func (w *world) dial() hostclient.Client {
	w.t.Helper()
	d, err := hostclient.Dial(w.server, w.credentials)
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(d.Close)
	return d
}

func (w *world) attempt() error {
	return Attempt(w.t.Context(), w.dial(), w.credentials, w.state)
}

// serial is that of the certificate in the files, which must belong to the key.
func (w *world) serial() string { return identity.Serial(w.dial().Certificate) }

// A plugin renews the certificate when less than a third of its life is left.
func TestAttempt(t *testing.T) {
	w := newWorld(t, 9*time.Hour) // of 24
	was := w.serial()
	if err := w.attempt(); err != nil || w.serial() != was || w.daemon.renewals.Load() != 0 {
		t.Errorf("not due: %d renewals, error %v", w.daemon.renewals.Load(), err)
	}
	w = newWorld(t, 7*time.Hour)
	was = w.serial()
	if err := w.attempt(); err != nil || w.serial() == was {
		t.Errorf("due: error %v", err)
	}
	if err := w.attempt(); err != nil || w.daemon.renewals.Load() != 1 {
		t.Errorf("a second time: %d renewals, error %v", w.daemon.renewals.Load(), err)
	}
	files, err := os.ReadDir(w.credentials)
	if err != nil || len(files) != 3 {
		t.Errorf("credentials are %v, error %v", files, err)
	}
}

// Of many plugins at the same time one renews the certificate, and each of the others finds
// a pair of certificate and key.
func TestAttemptsAtOnce(t *testing.T) {
	w := newWorld(t, 7*time.Hour)
	var wg sync.WaitGroup
	for i := range 16 {
		state := filepath.Join(w.state, string(rune('a'+i))) // the first must not keep the others out
		wg.Go(func() {
			if err := Attempt(t.Context(), w.dial(), w.credentials, state); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if n := w.daemon.renewals.Load(); n != 1 {
		t.Errorf("%d renewals, want 1", n)
	}
}

// If a renewal fails, the old certificate stays, and the next command does not try again at
// once.
func TestAttemptFails(t *testing.T) {
	for name, c := range map[string]struct {
		answer  func(*hostdpb.RenewResponse) (*hostdpb.RenewResponse, error)
		prepare func(w *world)
		asked   int32
		want    string
	}{
		"refused": {
			answer: func(*hostdpb.RenewResponse) (*hostdpb.RenewResponse, error) {
				return nil, grpcstatus.Error(codes.ResourceExhausted, "too often")
			}, asked: 1, want: "too often",
		},
		"garbage": {
			answer: func(*hostdpb.RenewResponse) (*hostdpb.RenewResponse, error) { return &hostdpb.RenewResponse{}, nil },
			asked:  1, want: "refuse the new certificate",
		},
		"old daemon": {
			answer: func(*hostdpb.RenewResponse) (*hostdpb.RenewResponse, error) {
				return nil, grpcstatus.Error(codes.Unimplemented, "unknown method")
			}, asked: 1,
		},
		"no room for the key": {
			prepare: func(w *world) {
				if err := os.MkdirAll(filepath.Join(w.credentials, identity.KeyFile+".new", "x"), 0o700); err != nil {
					t.Fatal(err)
				}
			}, asked: 0, want: "write key",
		},
	} {
		w := newWorld(t, 7*time.Hour)
		w.daemon.answer = c.answer
		if c.prepare != nil {
			c.prepare(w)
		}
		was := w.serial()
		err := w.attempt()
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) || w.serial() != was {
			t.Errorf("%s: got %v, want %q and the old certificate", name, err, c.want)
		}
		if err := w.attempt(); err != nil || w.daemon.renewals.Load() != c.asked {
			t.Errorf("%s: a second attempt made %d requests, error %v", name, w.daemon.renewals.Load(), err)
		}
	}
}

func TestCommand(t *testing.T) {
	w := newWorld(t, 20*time.Hour)
	call := func(args ...string) (code int, out string) {
		var text strings.Builder
		code = Main(t.Context(), append(args, "-server", w.server.String(), "-credentials", w.credentials), &text, &text)
		return code, text.String()
	}
	was := w.serial()
	if code, out := call("-if-due"); code != 0 || out != "" || w.serial() != was {
		t.Errorf("not due: exit code %d: %s", code, out)
	}
	code, out := call()
	if want := "renewed the certificate of node1: valid until "; code != 0 || !strings.HasPrefix(out, want) || w.serial() == was {
		t.Errorf("exit code %d, %q; want %q", code, out, want)
	}
	if _, used := w.daemon.seen.Load(w.serial()); !used {
		t.Error("the new certificate was not used")
	}
	w.daemon.answer = func(*hostdpb.RenewResponse) (*hostdpb.RenewResponse, error) {
		return nil, grpcstatus.Error(codes.Unimplemented, "unknown method")
	}
	if code, out := call(); code != 1 || !strings.Contains(out, "update it") {
		t.Errorf("old daemon: exit code %d: %s", code, out)
	}
	for _, args := range [][]string{{"-x"}, {"x"}} {
		var text strings.Builder
		if code := Main(t.Context(), args, &text, &text); code != 2 || text.Len() == 0 {
			t.Errorf("%v: exit code %d: %s", args, code, &text)
		}
	}
	var text strings.Builder
	if code := Main(t.Context(), []string{"-credentials", t.TempDir()}, &text, &text); code != 1 || !strings.Contains(text.String(), "client.key") {
		t.Errorf("no credentials: exit code %d: %s", code, &text)
	}
}

func TestLock(t *testing.T) {
	dir := t.TempDir()
	unlock, err := Lock(dir)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Lock(dir); !errors.Is(err, errBusy) {
		t.Errorf("second lock: got %v", err)
	}
	unlock()
	if unlock, err = Lock(dir); err != nil {
		t.Fatal(err)
	}
	unlock()
}
