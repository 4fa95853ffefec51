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
	dir := filepath.Join(StateDir, "turns")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, turnError(limit, err)
	}
	// Only the first one in the queue looks for a turn that is free.
	queue, err := openLock(filepath.Join(dir, "queue"))
	if err != nil {
		return nil, turnError(limit, err)
	}
	leave, err := flock(ctx, queue)
	if err != nil {
		return nil, turnError(limit, err)
	}
	defer leave()
	for pause := turnPoll; ; pause = min(2*pause, maxTurnPoll) {
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
		case <-time.After(pause):
		}
	}
}

// turnError asks the runtime to try again if only time has run out.
func turnError(limit time.Duration, err error) error {
	if errors.Is(err, context.DeadlineExceeded) {
		return types.NewError(types.ErrTryAgainLater, fmt.Sprintf("other commands of this guest's plugins did not end within %v: try again", limit), "")
	}
	return fmt.Errorf("wait for a turn: %w", err)
}
