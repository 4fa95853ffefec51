package guest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// restoreLimit is how long QEMU may take to start and to read the state of the devices, and the
// guest until its clock is right.
const restoreLimit = time.Minute

// restore starts a guest from c.Snapshot. When it returns, the guest runs, its clock is right, and
// it has been told to take its seed.
func (c Config) restore(ctx context.Context) (_ *Guest, err error) {
	limit := min(restoreLimit, c.limits().all)
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("not restored after %v", limit))
	defer cancel()
	seed, err := c.Seed.Archive()
	if err != nil {
		return nil, err
	}
	if len(seed) > seedRoom {
		return nil, fmt.Errorf("its seed has %d bytes: want at most %d", len(seed), seedRoom)
	}
	seed = append(seed, make([]byte, seedRoom-len(seed))...)
	q := c
	q.Slots = frozenSlots(c.Slots)
	var files []*os.File
	if c.Shares > 0 {
		memory, err := copyMemory(c.Snapshot.path(memoryFile))
		if err != nil {
			return nil, fmt.Errorf("copy the memory of the snapshot: %w", err)
		}
		defer memory.Close()
		files = append(files, memory)
	}
	g, control, err := q.startControlled(ctx, seed, false, files...)
	if err != nil {
		return nil, err
	}
	g.Config = c
	if err := g.watched(ctx, func(ctx context.Context) error { return g.thaw(ctx, control) }); err != nil {
		return nil, errors.Join(g.because(ctx, err), g.Kill(), control.close())
	}
	go func() { // until QEMU or this process ends: output that nobody reads would stop the guest
		_, _ = io.Copy(io.Discard, control.console)
		_ = control.console.Close()
	}()
	return g, control.monitor.Close()
}

// copyMemory returns a file in memory with the content of a sparse file.
func copyMemory(path string) (_ *os.File, err error) {
	from, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer from.Close()
	info, err := from.Stat()
	if err != nil {
		return nil, err
	}
	fd, err := unix.MemfdCreate("guest-memory", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, err
	}
	to := os.NewFile(uintptr(fd), "guest-memory")
	if err = to.Truncate(info.Size()); err == nil {
		err = copyData(int(to.Fd()), from, info.Size())
	}
	if err != nil {
		return nil, errors.Join(err, to.Close())
	}
	return to, nil
}

// copyData copies the parts of a sparse file that are not holes to the same places of another
// one, which is as large.
func copyData(to int, from *os.File, size int64) error {
	mapped, err := unix.Mmap(to, 0, int(size), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return err
	}
	for end := int64(0); err == nil; {
		var start int64
		if start, err = from.Seek(end, unix.SEEK_DATA); err == nil {
			end, err = from.Seek(start, unix.SEEK_HOLE)
		}
		if err == nil {
			_, err = from.ReadAt(mapped[start:end], start)
		}
	}
	if errors.Is(err, unix.ENXIO) { // no data follows
		err = nil
	}
	return errors.Join(err, unix.Munmap(mapped))
}

// thaw loads the state of the devices, lets the guest run, and sets its clock.
func (g *Guest) thaw(ctx context.Context, control *control) error {
	devices, err := os.Open(g.Snapshot.path(deviceFile))
	if err != nil {
		return err
	}
	defer devices.Close()
	if err := control.monitor.LoadState(ctx, devices); err != nil {
		return err
	}
	if g.resumed, err = control.monitor.Cont(ctx); err != nil {
		return err
	}
	return control.setClock(ctx, g.Snapshot.lag(g.resumed))
}
