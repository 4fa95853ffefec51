package credentials

import (
	"context"
	"errors"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	grpccredentials "google.golang.org/grpc/credentials"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"unnest.io/unnest/internal/cni/cnitest"
	"unnest.io/unnest/internal/hostapi/hostdpb"
	"unnest.io/unnest/internal/hostapi/identity"
	"unnest.io/unnest/internal/hostapi/identity/identitytest"
	"unnest.io/unnest/internal/hostapi/medium"
)

// fakeDaemon serves all certificates but those that it refuses.
type fakeDaemon struct {
	hostdpb.UnimplementedHostDaemonServer
	authority *identity.Authority
	renewals  error

	mu      sync.Mutex
	refused map[string]bool // by serial number
}

func serial(ctx context.Context) string {
	p, _ := peer.FromContext(ctx)
	return identity.Serial(p.AuthInfo.(grpccredentials.TLSInfo).State.PeerCertificates[0])
}

func (f *fakeDaemon) Status(ctx context.Context, _ *hostdpb.StatusRequest) (*hostdpb.StatusResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.refused[serial(ctx)] {
		return nil, status.Error(codes.Unauthenticated, "it was revoked")
	}
	return nil, status.Error(codes.Unavailable, "the guest's VMM does not answer")
}

func (f *fakeDaemon) Renew(ctx context.Context, r *hostdpb.RenewRequest) (*hostdpb.RenewResponse, error) {
	if f.renewals != nil {
		return nil, f.renewals
	}
	p, _ := peer.FromContext(ctx)
	c, err := f.authority.Renew("node1", p.AuthInfo.(grpccredentials.TLSInfo).State.PeerCertificates[0], r.GetCertificateRequest())
	if err != nil {
		return nil, err
	}
	return &hostdpb.RenewResponse{Certificate: c.Raw}, nil
}

// world is a guest with a drive, and its daemon.
type world struct {
	t      *testing.T
	daemon *fakeDaemon
	stop   func()
	node   *node
	medium medium.Content
	empty  error // of the drive
	looks  int
	out    strings.Builder
}

func newWorld(t *testing.T) *world {
	t.Helper()
	lab := t.TempDir()
	a, err := identity.OpenAuthority(lab)
	if err != nil {
		t.Fatal(err)
	}
	w := &world{t: t, daemon: &fakeDaemon{authority: a, refused: map[string]bool{}}}
	w.medium.Server, w.stop = cnitest.Serve(t, a, w.daemon)
	w.insert(identitytest.Issue(t, lab, "node1", time.Now().Add(20*time.Hour)))
	w.node = &node{dir: filepath.Join(t.TempDir(), "etc"), out: &w.out, find: func() (medium.Content, error) {
		w.looks++
		return w.medium, w.empty
	}}
	return w
}

func (w *world) insert(c identity.Credentials) {
	w.medium.CA, w.medium.Certificate, w.medium.Key = w.daemon.authority.CertificatePEM(), c.CertificatePEM, c.KeyPEM
}

func (w *world) update() {
	w.t.Helper()
	if err := w.node.update(w.t.Context()); err != nil {
		w.t.Fatal(err)
	}
}

// key is the guest's.
func (w *world) key() string {
	w.t.Helper()
	content, err := os.ReadFile(filepath.Join(w.node.dir, identity.KeyFile))
	if err != nil {
		w.t.Fatal(err)
	}
	return string(content)
}

func (w *world) refuse() {
	w.t.Helper()
	config, err := identity.ClientConfig(w.node.dir)
	if err != nil {
		w.t.Fatal(err)
	}
	w.daemon.mu.Lock()
	defer w.daemon.mu.Unlock()
	w.daemon.refused[identity.Serial(config.Certificates[0].Leaf)] = true
}

// A guest without credentials gets those of the medium, with a key of its own. They stay as
// long as the daemon accepts them.
func TestUpdate(t *testing.T) {
	w := newWorld(t)
	w.update()
	was := w.key()
	if was == string(w.medium.Key) || !strings.HasPrefix(w.out.String(), "installed the credentials of node1: valid until ") {
		t.Errorf("the key of the medium stays, or printed %q", &w.out)
	}
	w.out.Reset()
	looks := w.looks
	if w.update(); w.key() != was || w.out.Len() > 0 || w.looks != looks {
		t.Errorf("good credentials are replaced, or the drive was read: %s", &w.out)
	}
	w.node.known = netip.AddrPort{} // as the next process
	if w.update(); w.key() != was || w.out.Len() > 0 {
		t.Errorf("good credentials are replaced: %s", &w.out)
	}
	w.refuse()
	if w.update(); w.key() == was || w.out.Len() == 0 {
		t.Error("refused credentials stay")
	}
}

// If the daemon does not answer, or refuses to renew, the guest has the key of the medium.
// Credentials that it has already stay.
func TestUpdateWithoutRenewal(t *testing.T) {
	w := newWorld(t)
	w.daemon.renewals = status.Error(codes.ResourceExhausted, "too often")
	w.update()
	if w.key() != string(w.medium.Key) || !strings.Contains(w.out.String(), "too often") {
		t.Errorf("printed %s", &w.out)
	}
	w.daemon.renewals = nil
	w.stop()
	was := w.key()
	other, err := w.daemon.authority.Issue("node1")
	if err != nil {
		t.Fatal(err)
	}
	w.insert(other)
	if w.update(); w.key() != was {
		t.Error("credentials are replaced while the daemon does not answer")
	}
}

// Credentials of another guest or authority, and those that have expired, are replaced. What
// is not valid in the medium is not installed.
func TestUpdateOfOthers(t *testing.T) {
	w := newWorld(t)
	lab := t.TempDir()
	foreign := identitytest.Issue(t, lab, "node1", time.Now().Add(time.Hour))
	a, err := identity.OpenAuthority(lab)
	if err != nil {
		t.Fatal(err)
	}
	before := identity.Files{CA: a.CertificatePEM(), Certificate: foreign.CertificatePEM, Key: foreign.KeyPEM}
	if err := before.Install(w.node.dir); err != nil {
		t.Fatal(err)
	}
	if w.update(); w.key() == string(foreign.KeyPEM) {
		t.Error("the credentials of another host stay")
	}
	was := w.key()
	w.refuse()
	w.medium.CA = a.CertificatePEM()
	if err := w.node.update(t.Context()); err == nil || !strings.Contains(err.Error(), "refuse credentials") || w.key() != was {
		t.Errorf("a medium with a wrong authority: got %v", err)
	}
	w.empty = errNoMedium
	if err := w.node.update(t.Context()); !errors.Is(err, errNoMedium) {
		t.Errorf("empty drive: got %v", err)
	}
}

// The command waits for the medium, and watches it until it is stopped.
func TestWaitAndWatch(t *testing.T) {
	w := newWorld(t)
	w.empty = errNoMedium
	if err := w.node.wait(t.Context(), 0); !errors.Is(err, errNoMedium) {
		t.Errorf("got %v", err)
	}
	find := w.node.find
	w.node.find = func() (medium.Content, error) {
		c, err := find()
		w.empty = nil // from the second look on
		return c, err
	}
	if err := w.node.wait(t.Context(), time.Hour); err != nil || w.looks != 3 {
		t.Errorf("after %d looks: %v", w.looks, err)
	}
	w.node.dir = filepath.Join(t.TempDir(), "none")
	ctx, cancel := context.WithCancel(t.Context())
	w.node.find = func() (medium.Content, error) {
		if w.looks++; w.looks == 6 {
			cancel()
		}
		return medium.Content{}, errNoMedium
	}
	var errs strings.Builder
	w.node.watch(ctx, time.Millisecond, &errs)
	if got := errs.String(); got != errNoMedium.Error()+"\n" {
		t.Errorf("printed %q, want the error once", got)
	}
}

func TestCommand(t *testing.T) {
	for _, args := range [][]string{{"-x"}, {"x"}, {"-wait", "-1s"}, {"-interval", "0s"}} {
		var text strings.Builder
		if code := Main(t.Context(), args, &text, &text); code != 2 || text.Len() == 0 {
			t.Errorf("%v: exit code %d: %s", args, code, &text)
		}
	}
	if names, _ := filepath.Glob(drives); len(names) > 0 {
		return // this machine has a drive
	}
	var text strings.Builder
	if code := Main(t.Context(), []string{"-credentials", t.TempDir()}, &text, &text); code != 1 || !strings.Contains(text.String(), "credentials: vmm") {
		t.Errorf("exit code %d: %s", code, &text)
	}
}

// A drive whose medium has changed answers twice with an error. One that is empty stays so.
func TestRetry(t *testing.T) {
	errs := []error{unix.ENOMEDIUM, unix.EIO, nil}
	calls := 0
	changed := func() (medium.Content, error) {
		calls++
		return medium.Content{}, errs[calls-1]
	}
	if _, err := retry(changed); err != nil || calls != 3 {
		t.Errorf("after %d calls: %v", calls, err)
	}
	if _, err := retry(func() (medium.Content, error) { return medium.Content{}, unix.ENOMEDIUM }); !errors.Is(err, unix.ENOMEDIUM) {
		t.Errorf("empty drive: got %v", err)
	}
	calls = 0
	if _, err := retry(func() (medium.Content, error) { calls++; return medium.Content{}, medium.ErrForeign }); !errors.Is(err, medium.ErrForeign) || calls != 1 {
		t.Errorf("another medium: got %v after %d calls", err, calls)
	}
}

// Files and devices that others in the guest can make are no drives.
func TestReadRefuses(t *testing.T) {
	file := filepath.Join(t.TempDir(), "sr0")
	image, err := medium.Encode(newWorld(t).medium)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, image, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{file, "/dev/null", t.TempDir()} {
		if _, err := read(path); err == nil || !strings.Contains(err.Error(), "is not a CD-ROM drive") {
			t.Errorf("%s: got %v", path, err)
		}
	}
	if _, err := read(file + "1"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("no device: got %v", err)
	}
}
