package attachment

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"time"

	"github.com/containernetworking/cni/pkg/types"
	"golang.org/x/sys/unix"
)

const (
	// addTurn is how long an ADD waits for its turn. The kubelet gives a pod's network four minutes.
	addTurn = 3 * time.Minute
	// delTurn is how long a DEL waits before it goes on without: it must not fail for others.
	delTurn  = time.Minute
	turnPoll = 10 * time.Millisecond
	maxTurns = 16
)

// turns are how many ADDs and DELs work at the same time in this guest. Each waits for its NIC
// most of the time. With many more, the guest has no time for any: each plugged NIC wakes all that
// wait for theirs, and after a while all of them tell the kernel to look for new devices.
func turns() int { return min(2*runtime.NumCPU(), maxTurns) }

// takeTurn waits until fewer than turns other commands work. Commands come in the order of their calls,
// as far as the kernel keeps it. The turn ends with done, or with the process.
func takeTurn(ctx context.Context, limit time.Duration) (done func(), err error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	dir := filepath.Join(StateDir, "turns")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("wait for a turn: %w", err)
	}
	// Only the first one in the queue looks for a turn that is free.
	leave, err := awaitLock(ctx, filepath.Join(dir, "queue"))
	if err != nil {
		return nil, turnError(limit, err)
	}
	defer leave()
	for {
		for n := range turns() {
			f, err := openLock(filepath.Join(dir, strconv.Itoa(n)))
			if err != nil {
				return nil, turnError(limit, err)
			}
			err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
			if err == nil {
				return func() { _ = f.Close() }, nil
			}
			if err := f.Close(); err != nil {
				return nil, turnError(limit, err)
			}
		}
		select {
		case <-ctx.Done():
			return nil, turnError(limit, ctx.Err())
		case <-time.After(turnPoll):
		}
	}
}

// turnError asks the runtime to try again if only time has run out.
func turnError(limit time.Duration, err error) error {
	if errors.Is(err, context.DeadlineExceeded) {
		return types.NewError(types.ErrTryAgainLater, fmt.Sprintf("no turn within %v: other commands of this guest's plugins are not done; try again", limit), "")
	}
	return fmt.Errorf("wait for a turn: %w", err)
}

func openLock(path string) (*os.File, error) { return os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600) }

// awaitLock locks a file. Those that wait do not use the processor. When ctx ends first, the lock that
// comes too late ends at once.
func awaitLock(ctx context.Context, path string) (unlock func(), err error) {
	f, err := openLock(path)
	if err != nil {
		return nil, err
	}
	locked := make(chan error, 1)
	go func() {
		err := unix.Flock(int(f.Fd()), unix.LOCK_EX)
		for errors.Is(err, unix.EINTR) {
			err = unix.Flock(int(f.Fd()), unix.LOCK_EX)
		}
		locked <- err
	}()
	select {
	case err := <-locked:
		if err != nil {
			return nil, errors.Join(err, f.Close())
		}
		return func() { _ = f.Close() }, nil
	case <-ctx.Done():
		go func() { _ = errors.Join(<-locked, f.Close()) }()
		return nil, ctx.Err()
	}
}
