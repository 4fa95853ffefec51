package daemon

import (
	"bytes"
	"crypto/tls"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"unnest.io/unnest/internal/hostapi/hostdpb"
	"unnest.io/unnest/internal/hostapi/medium"

	"unnest.io/unnest/internal/hostd/record"

	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"
)

// media returns what QEMU has of media.
func (m *machine) media() (found []medium.Content) {
	m.lab.t.Helper()
	dir := fmt.Sprintf("/proc/%d/fd", m.qemu.Process.Pid)
	open, err := os.ReadDir(dir)
	m.lab.check(err)
	for _, fd := range open {
		path := filepath.Join(dir, fd.Name())
		if target, _ := os.Readlink(path); !strings.HasPrefix(target, "/memfd:unnest-credentials") {
			continue
		}
		content, err := os.ReadFile(path)
		m.lab.check(err)
		c, err := medium.Decode(bytes.NewReader(content))
		m.lab.check(err)
		found = append(found, c)
	}
	return found
}

// A guest of a real QEMU gets its credentials in its drive, a daemon that replaces a killed
// one leaves them there, and they go with the guest.
func TestCredentialsThroughQEMU(t *testing.T) {
	l := newLab(t)
	m := l.boot(1, 1, "-device", "ide-cd,id=unnest-credentials")
	l.check(m.owner.Execute(t.Context(), "cont", nil, nil)) // paused, QEMU keeps descriptors
	configured := m.configure("ports: [rp1], credentials: vmm")
	l.check(os.Remove(record.Path(l.dir, m.record.Name)))
	l.configuration(configured)
	l.serve(patience)
	l.eventually("QEMU has one medium", func() bool { return len(m.media()) == 1 })
	c := m.media()[0]
	pair, err := tls.X509KeyPair(c.Certificate, c.Key)
	l.check(err)
	if c.Server.String() != l.addr {
		t.Errorf("the daemon is at %s, the medium says %s", l.addr, c.Server)
	}
	m.config = &tls.Config{Certificates: []tls.Certificate{pair}, InsecureSkipVerify: true}
	m.mustAttach("c1") // the drive takes no slot
	l.end(l.daemon, syscall.SIGKILL)
	l.serve(patience)
	m.mustAttach("c1")
	if now := m.media(); len(now) != 1 || !bytes.Equal(now[0].Key, c.Key) {
		t.Errorf("the next daemon has replaced the medium: QEMU has %d", len(now))
	}
	l.reloaded(func() { l.configuration("  []\n") })
	l.eventually("the drive is empty", func() bool { return len(m.media()) == 0 })
	l.eventually("the guest is refused", func() bool {
		_, err := m.client().Status(t.Context(), &hostdpb.StatusRequest{})
		return grpcstatus.Code(err) == codes.Unauthenticated
	})
	l.eventually("the record is gone", func() bool {
		_, err := os.Stat(record.Path(l.dir, m.record.Name))
		return errors.Is(err, os.ErrNotExist)
	})
}
