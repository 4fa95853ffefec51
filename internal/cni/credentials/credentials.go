// Package credentials gives the guest the credentials that its VMM hands to it, on a medium in
// a CD-ROM drive.
//
// What the daemon accepts belongs to the daemon, the format of the medium to package medium,
// and the files to package identity.
package credentials

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"unnest.io/unnest/internal/cni/hostclient"
	"unnest.io/unnest/internal/cni/renewal"
	"unnest.io/unnest/internal/hostapi/identity"
	"unnest.io/unnest/internal/hostapi/medium"
)

// node is where the guest has its credentials.
type node struct {
	dir    string
	server netip.AddrPort // of the daemon; zero: the medium says it
	find   func() (medium.Content, error)
	out    io.Writer // what has changed

	known netip.AddrPort // server, or what the latest medium said
}

// update replaces the guest's credentials by those of the medium unless the daemon accepts
// the present ones, or does not answer and they can be used. It looks for a medium only if
// it needs one, or cannot ask the daemon without.
func (n *node) update(ctx context.Context) error {
	if !n.known.IsValid() {
		n.known = n.server
	}
	if n.known.IsValid() && renewal.Use(ctx, n.known, n.dir) == nil {
		return nil
	}
	c, err := n.find()
	if err != nil {
		return err
	}
	if !n.server.IsValid() {
		n.known = c.Server
	}
	installed, err := n.install(ctx, identity.Files{CA: c.CA, Certificate: c.Certificate, Key: c.Key})
	if err != nil || !installed {
		return err
	}
	return n.renew(ctx)
}

// refused reports whether the daemon has refused credentials. Without an answer it has not.
func refused(err error) bool {
	r := (*hostclient.Refusal)(nil)
	return errors.As(err, &r) && (r.Reached || r.Expired)
}

// install installs credentials, and reports whether they are needed. Another process may have
// installed them meanwhile.
func (n *node) install(ctx context.Context, files identity.Files) (needed bool, err error) {
	if err := os.MkdirAll(n.dir, 0o700); err != nil {
		return false, fmt.Errorf("install credentials: %w", err)
	}
	unlock, err := renewal.Lock(n.dir)
	if err != nil {
		return false, fmt.Errorf("install credentials: %w", err)
	}
	defer unlock()
	if same, _ := files.SameGuest(n.dir); same && !refused(renewal.Use(ctx, n.known, n.dir)) {
		return false, nil
	}
	return true, files.Install(n.dir)
}

// renew replaces the key of the medium by one that never leaves the guest. If that fails, the
// guest keeps the medium's, which the plugin renews when it is due.
func (n *node) renew(ctx context.Context) error {
	d, err := hostclient.Dial(n.known, n.dir)
	if err != nil {
		return err
	}
	defer d.Close()
	c, err := renewal.Renew(ctx, d, n.dir)
	if err == nil {
		err = renewal.Use(ctx, n.known, n.dir)
	}
	if err != nil {
		_, err = fmt.Fprintf(n.out, "installed the credentials of %s; their key is not replaced: %v\n", d.Certificate.Subject.CommonName, err)
		return err
	}
	_, err = fmt.Fprintf(n.out, "installed the credentials of %s: valid until %s\n", c.Subject.CommonName, c.NotAfter.Format(time.DateOnly))
	return err
}

// errNoMedium is wrapped when no drive has credentials.
var errNoMedium = errors.New("find credentials of the VMM: no CD-ROM drive has them; check that the guest has `credentials: vmm` in hostd.yaml and the drive, and that the log of unnest hostd has no error")

// drives are the CD-ROM drives that the kernel knows.
const drives = "/sys/class/block/sr*"

// cdromMajor is the number of the kernel's driver of CD-ROM drives (Documentation/admin-guide/devices.txt).
const cdromMajor = 11

// find returns the content of the first drive that has credentials. A drive that cannot be
// read is reported if no other one has them.
func find() (medium.Content, error) {
	names, err := filepath.Glob(drives)
	if err != nil {
		return medium.Content{}, err
	}
	var failed error
	for _, n := range names {
		c, err := retry(func() (medium.Content, error) { return read(filepath.Join("/dev", filepath.Base(n))) })
		if err == nil {
			return c, nil
		}
		if !errors.Is(err, medium.ErrForeign) && !errors.Is(err, unix.ENOMEDIUM) {
			failed = errors.Join(failed, err)
		}
	}
	if failed != nil {
		return medium.Content{}, fmt.Errorf("find credentials of the VMM: %w", failed)
	}
	return medium.Content{}, errNoMedium
}

// After a change of the medium a drive answers twice with an error: that it has no medium, and
// that the medium may have changed (SCSI's NOT READY and UNIT ATTENTION).
const (
	readTries = 4
	readPause = 250 * time.Millisecond
)

// retry calls read again after errors of a drive whose medium has changed.
func retry(read func() (medium.Content, error)) (c medium.Content, err error) {
	for try := range readTries {
		if try > 0 {
			time.Sleep(readPause)
		}
		if c, err = read(); !errors.Is(err, unix.ENOMEDIUM) && !errors.Is(err, unix.EIO) {
			return c, err
		}
	}
	return c, err
}

// read reads the medium in a drive. Only the hypervisor makes CD-ROM drives, whereas others
// in the guest make files and loop devices.
func read(path string) (medium.Content, error) {
	// Without O_NONBLOCK, opening an empty drive closes its tray and locks it.
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return medium.Content{}, err
	}
	defer f.Close()
	var s unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &s); err != nil {
		return medium.Content{}, err
	}
	if s.Mode&unix.S_IFMT != unix.S_IFBLK || unix.Major(s.Rdev) != cdromMajor {
		return medium.Content{}, fmt.Errorf("%s is not a CD-ROM drive", path)
	}
	c, err := medium.Decode(f)
	if err != nil {
		return c, fmt.Errorf("%s: %w", path, err)
	}
	return c, nil
}
