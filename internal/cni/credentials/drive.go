package credentials

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"unnest.io/unnest/internal/hostapi/medium"
)

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
