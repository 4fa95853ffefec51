package guest

import (
	"context"
	"errors"
	"fmt"
	"os"

	"unnest.io/unnest/internal/vmm/qmp"
)

// freeze boots the guest c, whose snapshot is being made, and freezes it.
func (c Config) freeze(ctx context.Context) (m manifest, err error) {
	ctx, cancel := context.WithTimeout(ctx, 2*c.limits().all) // the second half is for QEMU's files
	defer cancel()
	if err := c.writeDisks(); err != nil {
		return m, err
	}
	g, control, err := c.startControlled(ctx, make([]byte, seedRoom), true)
	if err != nil {
		return m, err
	}
	defer func() { err = errors.Join(err, g.Kill(), control.close()) }()
	ctx, stop := control.whileWriting(ctx)
	defer stop()
	// The guest may take as long to be ready for freezing as another guest takes to boot.
	err = g.watched(ctx, func(ctx context.Context) (err error) { m.Ahead, err = control.awaitFrozen(ctx); return err })
	if err == nil {
		err = g.watched(ctx, func(ctx context.Context) (err error) {
			if m.Stopped, err = control.monitor.Stop(ctx); err != nil {
				return err
			}
			if err := saveDevices(ctx, control.monitor, c.Snapshot.path(deviceFile)); err != nil {
				return err
			}
			return control.monitor.Execute(ctx, "quit", nil, nil)
		})
	}
	if err != nil {
		return m, g.because(ctx, err)
	}
	select {
	case <-g.done:
	case <-ctx.Done():
		return m, g.because(ctx, context.Cause(ctx))
	}
	return m, errors.Join(os.Remove(c.path(seedFile)), os.Remove(c.path(consoleFile)), os.Remove(c.path(qemuFile)))
}

// writeDisks makes the files that the guest writes to: its disk and its memory.
func (c Config) writeDisks() error {
	if err := writeOverlayDisk(c.Snapshot.path(diskFile), c.Image.Root); err != nil {
		return err
	}
	f, err := os.OpenFile(c.Snapshot.path(memoryFile), os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o600)
	if err != nil {
		return err
	}
	return errors.Join(f.Truncate(c.Memory), f.Close())
}

func saveDevices(ctx context.Context, monitor *qmp.Client, path string) error {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	return errors.Join(monitor.SaveState(ctx, f), f.Close())
}

func (c *control) close() error { return errors.Join(c.monitor.Close(), c.console.Close()) }

// whileWriting returns a context that ends when QEMU cannot write to the disk. QEMU
// stops the guest then.
func (c *control) whileWriting(ctx context.Context) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	events := c.monitor.Subscribe("BLOCK_IO_ERROR")
	go func() {
		if e, err := events.Next(ctx); err == nil {
			cancel(fmt.Errorf("write disk: %s", e.Data))
		}
	}()
	return ctx, func() { cancel(nil); events.Close() }
}
