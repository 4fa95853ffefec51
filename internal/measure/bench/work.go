package bench

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// workPrefix begins the names of the runs' work directories in the cache.
const workPrefix = "work-"

// claimWork makes a work directory, or takes over the one that a dead run left. This
// process owns it as long as the file is open.
func claimWork(dir string) (*os.File, error) {
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
	left, err := filepath.Glob(filepath.Join(cache, workPrefix+"*"))
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
	name := strings.TrimPrefix(filepath.Base(dir), workPrefix)
	return errors.Join(removeGroups(groupOf(name)), os.RemoveAll(dir))
}

// groupOf is the control group of the containers of the lab with an ID.
func groupOf(lab string) string { return "unnest-" + lab }

// groupPatience is how long processes may take to leave their control group after they
// are killed.
const groupPatience = 2 * time.Second

// removeGroups removes a control group with its subgroups from all hierarchies: one in
// version 2, several in version 1.
func removeGroups(name string) error {
	var err error
	for _, pattern := range []string{"/sys/fs/cgroup/", "/sys/fs/cgroup/*/"} {
		found, globErr := filepath.Glob(pattern + name)
		err = errors.Join(err, globErr)
		for _, group := range found {
			err = errors.Join(err, removeGroup(group))
		}
	}
	return err
}

func removeGroup(path string) error {
	below, err := os.ReadDir(path)
	for _, e := range below {
		if e.IsDir() {
			err = errors.Join(err, removeGroup(filepath.Join(path, e.Name())))
		}
	}
	if err != nil {
		return err
	}
	for end := time.Now().Add(groupPatience); ; time.Sleep(20 * time.Millisecond) {
		err := unix.Rmdir(path)
		if err == nil || errors.Is(err, unix.ENOENT) {
			return nil
		}
		if !errors.Is(err, unix.EBUSY) || time.Now().After(end) {
			return fmt.Errorf("remove control group %s: %w", path, err)
		}
	}
}
