package attachment

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"time"

	"github.com/containernetworking/cni/pkg/types"
	"golang.org/x/sys/unix"
)

const (
	lockTime = 90 * time.Second // longer than most ADDs with their rollback
	locks    = 256              // lock files; a fixed number, so that none has to be removed
)

// lock keeps other commands for the same attachment out. It ends with unlock, or when this process and, for a NIC, all
// plugins that it has called have ended. An IPAM plugin outlives a killed process, and the DEL that follows has
// to wait until that plugin has its lease. The specification forbids runtimes to run two commands at a time (CNI
// 1.1, "Lifecycle & Ordering"). Some do, and the rollback of one must not release the other's NIC.
func (k Kind) lock(ctx context.Context, container, iface string) (unlock func(), err error) {
	ctx, cancel := context.WithTimeout(ctx, lockTime)
	defer cancel()
	f, unlock, err := lockAlone(ctx, container, iface)
	if err == nil && k.name == NIC.name { // an endpoint has no IPAM plugin, but the Docker driver calls docker-proxies, which outlive it
		return inherited(f)
	}
	return unlock, err
}

// lockAlone is lock without its limit of time, for this process only: no program that it calls keeps the lock.
func lockAlone(ctx context.Context, container, iface string) (f *os.File, unlock func(), err error) {
	h := fnv.New32a()
	_, _ = h.Write([]byte(container + ":" + iface)) // never fails
	f, unlock, err = lockFile(ctx, "locks", fmt.Sprint(h.Sum32()%locks))
	if err != nil {
		err = fmt.Errorf("lock attachment %s %s against other commands: %w", container, iface, err)
	}
	return f, unlock, err
}

// inherited has programs that this process calls keep the lock on f, until unlock ends it for all.
func inherited(f *os.File) (unlock func(), err error) {
	fd := f.Fd()
	if _, err := unix.FcntlInt(fd, unix.F_SETFD, 0); err != nil {
		return nil, fmt.Errorf("have IPAM plugins keep the lock %s: %w", f.Name(), errors.Join(err, f.Close()))
	}
	return func() { _ = errors.Join(unix.Flock(int(fd), unix.LOCK_UN), f.Close()) }, nil
}

// LockDir keeps others that lock a directory out until unlock, or the end of this process. It waits for them until
// ctx ends; the error then wraps EWOULDBLOCK.
func LockDir(ctx context.Context, dir string) (unlock func(), err error) {
	f, err := os.Open(dir)
	if err == nil {
		unlock, err = flock(ctx, f)
	}
	if err != nil {
		return nil, fmt.Errorf("lock %s: %w", dir, err)
	}
	return unlock, nil
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

// lockFile is flock of a file that openLock opens.
func lockFile(ctx context.Context, dir, name string) (f *os.File, unlock func(), err error) {
	if f, err = openLock(dir, name); err == nil {
		unlock, err = flock(ctx, f)
	}
	return f, unlock, err
}

// openLock opens a file in a directory of StateDir, and makes what is missing.
func openLock(dir, name string) (*os.File, error) {
	dir = filepath.Join(StateDir, dir)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	return os.OpenFile(filepath.Join(dir, name), os.O_CREATE|os.O_RDWR, 0o600)
}

const (
	// addTurn is how long an ADD waits for its turn. The kubelet gives a pod's network four minutes.
	addTurn = 3 * time.Minute
	// delTurn is how long a DEL waits before it goes on without a turn: it must not fail because others
	// are slow.
	delTurn  = time.Minute
	maxTurns = 16
	// The first command in the queue looks for a free turn again and again. The pause doubles from
	// turnPoll to maxTurnPoll, because each look opens and locks up to maxTurns files.
	turnPoll    = 10 * time.Millisecond
	maxTurnPoll = 160 * time.Millisecond
)

// turns is the number of ADDs and DELs that work at the same time in this guest. An ADD mostly
// waits for its NIC. If a hundred did so, each plugged NIC would wake all of them: none would get far.
func turns() int { return min(2*runtime.NumCPU(), maxTurns) }

// takeTurn waits until fewer than turns other commands work. Commands come in the order of their calls,
// as far as the kernel keeps it. The turn ends with done, or with the process.
func takeTurn(ctx context.Context, limit time.Duration) (done func(), err error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	// Only the first one in the queue looks for a turn that is free.
	_, leave, err := lockFile(ctx, "turns", "queue")
	if err != nil {
		return nil, turnError(limit, err)
	}
	defer leave()
	for pause := turnPoll; ; pause = min(2*pause, maxTurnPoll) {
		for n := range turns() {
			f, err := openLock("turns", strconv.Itoa(n))
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
		case <-time.After(pause):
		}
	}
}

// takeAllTurns waits until no other command has a turn. None gets one before done.
func takeAllTurns(ctx context.Context) (done func(), err error) {
	ctx, cancel := context.WithTimeout(ctx, delTurn)
	defer cancel()
	names := []string{"queue"}
	for n := range maxTurns { // not turns(), which others may have counted for other processors
		names = append(names, strconv.Itoa(n))
	}
	done = func() {}
	for _, name := range names {
		before := done
		_, end, err := lockFile(ctx, "turns", name)
		if err != nil {
			before()
			return nil, turnError(delTurn, err)
		}
		done = func() { end(); before() }
	}
	return done, nil
}

// turnError asks the runtime to try again if only time has run out.
func turnError(limit time.Duration, err error) error {
	if errors.Is(err, context.DeadlineExceeded) {
		return types.NewError(types.ErrTryAgainLater, fmt.Sprintf("other commands of this guest's plugins did not end within %v: try again", limit), "")
	}
	return fmt.Errorf("wait for a turn: %w", err)
}
