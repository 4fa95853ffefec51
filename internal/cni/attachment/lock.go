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
	lockPoll = 20 * time.Millisecond
	lockTime = 90 * time.Second // longer than an ADD, and its undo, as a rule take
	locks    = 256              // files: those of attachments that are no more need no removal
)

// Lock keeps other commands for the same attachment out until unlock is called or
// the process ends. The specification forbids runtimes to have two at a time
// (CNI 1.1, "Lifecycle & Ordering"); with those that do, the undo of one must not
// take the other's NIC.
func (s State) Lock(ctx context.Context, container, iface string) (unlock func(), err error) {
	h := fnv.New32a()
	_, _ = h.Write([]byte(container + ":" + iface)) // never fails
	unlock, err = s.lockFile(ctx, fmt.Sprint(h.Sum32()%locks))
	if err != nil {
		return nil, fmt.Errorf("wait for other commands for %s %s: %w", container, iface, err)
	}
	return unlock, nil
}

func (s State) lockFile(ctx context.Context, name string) (unlock func(), err error) {
	ctx, cancel := context.WithTimeout(ctx, lockTime)
	defer cancel()
	dir := filepath.Join(string(s), "locks")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	f, err := os.OpenFile(filepath.Join(dir, name), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	if err := await(ctx, f); err != nil {
		return nil, err
	}
	return func() { _ = f.Close() }, nil
}

// await locks a file, which it closes when that fails. When ctx ends the error is
// EWOULDBLOCK.
func await(ctx context.Context, f *os.File) error {
	for {
		err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if err == nil {
			return nil
		}
		if !errors.Is(err, unix.EWOULDBLOCK) || ctx.Err() != nil {
			return errors.Join(err, f.Close())
		}
		time.Sleep(lockPoll)
	}
}
