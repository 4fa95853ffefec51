package thishost

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"unnest.io/unnest/internal/measure/machines/cgroup"
)

// WorkPrefix begins the names of the runs' work directories in the cache.
const WorkPrefix = "work-"

// ClaimWork makes a work directory, or takes over the one that a dead run left. This
// process owns it as long as the file is open.
func ClaimWork(dir string) (*os.File, error) {
	for {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return nil, fmt.Errorf("make work directory: %w", err)
		}
		f, err := lockWork(dir)
		if err == nil || !errors.Is(err, fs.ErrNotExist) { // another run has removed it in between
			return f, err
		}
	}
}

// lockWork locks a work directory. The error wraps EWOULDBLOCK when its owner lives, and
// fs.ErrNotExist when the directory is gone.
func lockWork(dir string) (*os.File, error) {
	f, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if err == nil {
		err = sameFile(f, dir)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("lock %s: %w", dir, err), f.Close())
	}
	return f, nil
}

// sameFile returns an error that wraps fs.ErrNotExist when the path of f is gone or is
// that of another file now.
func sameFile(f *os.File, path string) error {
	opened, err := f.Stat()
	if err != nil {
		return err
	}
	found, err := os.Stat(path)
	if err == nil && !os.SameFile(opened, found) {
		err = fs.ErrNotExist
	}
	return err
}

// CleanWork removes the work directories in the cache that dead runs left, with their
// control groups, and returns the paths of the directories. With dryRun it only lists
// them. The directories of live runs stay.
func CleanWork(cache string, dryRun bool) (removed []string, err error) {
	left, err := filepath.Glob(filepath.Join(cache, WorkPrefix+"*"))
	for _, dir := range left {
		lock, lockErr := lockWork(dir)
		if errors.Is(lockErr, unix.EWOULDBLOCK) || errors.Is(lockErr, fs.ErrNotExist) {
			continue
		}
		if lockErr == nil {
			removed = append(removed, dir)
			if !dryRun {
				lockErr = removeWork(dir)
			}
			lockErr = errors.Join(lockErr, lock.Close())
		}
		err = errors.Join(err, lockErr)
	}
	return removed, err
}

// removeWork removes a work directory, after the control groups of its containers.
func removeWork(dir string) error {
	name := strings.TrimPrefix(filepath.Base(dir), WorkPrefix)
	return errors.Join(cgroup.Remove(cgroup.OfLab(name)), os.RemoveAll(dir))
}
