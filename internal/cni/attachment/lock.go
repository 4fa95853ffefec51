package attachment

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

const (
	lockTime = 90 * time.Second // longer than most ADDs with their rollback
	locks    = 256              // lock files; a fixed number, so that none has to be removed
)

// lock keeps other commands for the same attachment out. It ends with unlock, or when this process and all
// plugins that it has called have ended. An IPAM plugin outlives a killed process, and the DEL that follows has
// to wait until that plugin has its lease. The specification forbids runtimes to run two commands at a time (CNI
// 1.1, "Lifecycle & Ordering"). Some do, and the rollback of one must not release the other's NIC.
func lock(ctx context.Context, container, iface string) (unlock func(), err error) {
	ctx, cancel := context.WithTimeout(ctx, lockTime)
	defer cancel()
	f, unlock, err := lockAlone(ctx, container, iface)
	if err != nil {
		return nil, err
	}
	if unlock, err = inherited(f); err != nil {
		return nil, lockError(container, iface, err)
	}
	return unlock, nil
}

// lockAlone is lock without its limit of time, for this process only: no program that it calls keeps the lock.
func lockAlone(ctx context.Context, container, iface string) (f *os.File, unlock func(), err error) {
	h := fnv.New32a()
	_, _ = h.Write([]byte(container + ":" + iface)) // never fails
	path := filepath.Join(StateDir, "locks", fmt.Sprint(h.Sum32()%locks))
	if err = os.MkdirAll(filepath.Dir(path), 0o700); err == nil {
		if f, err = openLock(path); err == nil {
			unlock, err = flock(ctx, f)
		}
	}
	return f, unlock, lockError(container, iface, err)
}

func lockError(container, iface string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("lock attachment %s %s against other commands: %w", container, iface, err)
}

// inherited has programs that this process calls keep the lock on f, until unlock ends it for all.
func inherited(f *os.File) (unlock func(), err error) {
	fd := f.Fd()
	if _, err := unix.FcntlInt(fd, unix.F_SETFD, 0); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return func() { _ = errors.Join(unix.Flock(int(fd), unix.LOCK_UN), f.Close()) }, nil
}

// flock locks f. It waits in the kernel, without using the processor. The lock ends when unlock closes
// f, or with the process. On an error flock closes f; when ctx ends, the error wraps EWOULDBLOCK and
// the cause.
func flock(ctx context.Context, f *os.File) (unlock func(), err error) {
	unlock = func() { _ = f.Close() }
	err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if err == nil {
		return unlock, nil
	}
	if !errors.Is(err, unix.EWOULDBLOCK) {
		return nil, errors.Join(err, f.Close())
	}
	locked := make(chan error, 1)
	go func() { locked <- unix.Flock(int(f.Fd()), unix.LOCK_EX) }()
	select {
	case err := <-locked:
		if err != nil {
			return nil, errors.Join(err, f.Close())
		}
		return unlock, nil
	case <-ctx.Done():
		go func() { _ = errors.Join(<-locked, f.Close()) }() // a lock that comes now ends at once
		return nil, errors.Join(unix.EWOULDBLOCK, context.Cause(ctx))
	}
}

func openLock(path string) (*os.File, error) { return os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600) }
