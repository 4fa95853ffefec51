package daemon

import (
	"errors"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"

	"unnest.io/unnest/internal/hostapi/hostdpb"
	"unnest.io/unnest/internal/hostapi/identity"
	"unnest.io/unnest/internal/hostd/certificates"
	"unnest.io/unnest/internal/hostd/credentials"
	"unnest.io/unnest/internal/hostd/quota"
	"unnest.io/unnest/internal/hostd/record"
)

// open is how many connections with certificates there are.
func (r *renewing) open() int {
	return r.daemon.api.Connections()
}

// A revoked certificate ends its connections at once, cannot be renewed, and stays revoked
// for the next daemon. Enrolling the guest again admits it.
func TestRevoke(t *testing.T) {
	r := newRenewing(t)
	t.Cleanup(r.serveHTTP())
	old := r.dial(r.first)
	next := r.dial(r.mustRenew(old))
	r.want("new", next, "VMM")
	r.want("old", old, "VMM")
	if r.open() != 2 {
		t.Fatalf("%d connections, want 2", r.open())
	}
	revoked, err := credentials.Revoke(t.Context(), r.dir, "node1", "")
	if err != nil || len(revoked) != 2 {
		t.Fatalf("revoked %v, error %v; want two certificates", revoked, err)
	}
	if r.open() != 0 {
		t.Errorf("%d connections after Revoke, want none", r.open())
	}
	// The client connects again, and learns why it is refused.
	r.eventuallyRefused(old, "revoked")
	r.eventuallyRefused(next, "revoked")
	if c, err := r.renew(r.dial(r.first)); grpcstatus.Code(err) != codes.Unauthenticated || !strings.Contains(err.Error(), "revoked") {
		t.Errorf("renewal of a revoked certificate: got %v, %v", c, err)
	}
	again, _ := testDaemon(t, r.dir)
	address := serveTest(t, again, r.dir)
	if _, err := dial(t, address, r.first).Status(t.Context(), &hostdpb.StatusRequest{}); grpcstatus.Code(err) != codes.Unauthenticated {
		t.Errorf("after a restart: got %v", err)
	}
	if got, err := credentials.Revoke(t.Context(), r.dir, "node1", ""); err != nil || len(got) != 0 {
		t.Errorf("a second time: revoked %v, error %v", got, err)
	}
	out := t.TempDir()
	if err := credentials.Enroll(r.dir, quota.Config{}, "node1", out); err != nil {
		t.Fatal(err)
	}
	config, err := identity.ClientConfig(out)
	if err != nil {
		t.Fatal(err)
	}
	config.InsecureSkipVerify = true // the name of the test's server
	r.want("enrolled again", r.dial(config), "VMM")
}

// A client that connects with a revoked certificate learns why, although the daemon looks for
// connections to end all the time.
func TestRevokedClientLearnsWhy(t *testing.T) {
	r := newRenewing(t)
	if _, err := credentials.Revoke(t.Context(), r.dir, "node1", ""); err != nil {
		t.Fatal(err)
	}
	client := r.dial(r.first)
	for range 3 {
		r.want("revoked", client, "revoked on")
		r.daemon.api.CloseRefused()
		if n := r.open(); n != 1 {
			t.Fatalf("%d connections, want that of the refused client", n)
		}
	}
}

// eventuallyRefused waits for an answer with the words. The request under way when the
// daemon ends a connection gets none.
func (r *renewing) eventuallyRefused(client hostdpb.HostDaemonClient, words string) {
	r.t.Helper()
	r.eventually(func() (bool, error) {
		_, err := client.Status(r.t.Context(), &hostdpb.StatusRequest{})
		return strings.Contains(err.Error(), words), err
	})
}

// eventually waits for a condition, and fails with its last error.
func (r *renewing) eventually(f func() (bool, error)) {
	r.t.Helper()
	for begin := time.Now(); ; time.Sleep(20 * time.Millisecond) {
		ok, err := f()
		if ok {
			return
		}
		if time.Since(begin) > time.Minute {
			r.t.Fatalf("not within a minute: %v", err)
		}
	}
}

// serveHTTP serves the operator until stop.
func (r *renewing) serveHTTP() (stop func()) {
	r.t.Helper()
	listeners, err := r.daemon.listenHTTP(r.t.Context())
	if err != nil {
		r.t.Fatal(err)
	}
	return r.daemon.serveHTTP(listeners)
}

// One certificate is revoked by its serial number, without a daemon that is told: it sees
// the file.
func TestRevokeSerial(t *testing.T) {
	r := newRenewing(t)
	old := r.dial(r.first)
	config := r.mustRenew(old)
	next := r.dial(config)
	r.want("new", next, "VMM")
	serial := identity.Serial(config.Certificates[0].Leaf)
	if _, err := credentials.Revoke(t.Context(), r.dir, "node1", "beef"); !errors.Is(err, certificates.ErrNoSerial) {
		t.Errorf("unknown serial: got %v", err)
	}
	if revoked, err := credentials.Revoke(t.Context(), r.dir, "node1", strings.ToUpper(serial)); err != nil || len(revoked) != 1 || revoked[0].Serial != serial {
		t.Errorf("revoked %v, error %v", revoked, err)
	}
	r.eventuallyRefused(next, "revoked on")
	r.want("the other", old, "VMM")
	r.eventually(func() (bool, error) { return r.open() == 1, nil })
	if _, err := credentials.Revoke(t.Context(), r.dir, "node2", ""); !errors.Is(err, record.ErrNoRecord) {
		t.Errorf("no such guest: got %v", err)
	}
	if _, err := credentials.Revoke(t.Context(), r.dir, "../node1", ""); err == nil {
		t.Error("a path was accepted")
	}
}

// A renewal that is under way when its certificate is revoked gets nothing.
func TestRevokeDuringRenewal(t *testing.T) {
	r := newRenewing(t)
	client := r.dial(r.first)
	r.want("before", client, "VMM")
	renewed := make(chan error, 1)
	if err := record.ChangeCertificates(r.dir, mustRecord(t, r.dir), func(s certificates.Set) (certificates.Set, error) {
		go func() {
			_, err := r.renew(client)
			renewed <- err
		}()
		time.Sleep(200 * time.Millisecond) // the request passes its authentication and waits for the lock
		s, _, err := s.Revoke("", time.Now())
		return s, err
	}); err != nil {
		t.Fatal(err)
	}
	err := <-renewed
	refused := grpcstatus.Code(err) == codes.Unauthenticated && strings.Contains(err.Error(), "revoked")
	if ended := grpcstatus.Code(err) == codes.Unavailable; !refused && !ended { // the daemon ends the connection, too
		t.Errorf("the renewal got %v", err)
	}
	if set := mustCertificates(t, r.dir); len(set.Certificates) != 1 || set.Certificates[0].State(time.Now()) != "revoked" {
		t.Errorf("certificates are %+v", set)
	}
}
