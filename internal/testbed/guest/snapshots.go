package guest

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"

	"unnest.io/unnest/internal/testbed/image"
)

// Snapshots finds frozen guests in a cache directory, and makes those that are missing.
type Snapshots struct {
	Cache    string            // directory, also of the images
	Progress func(step string) // called with each step; may be nil
}

// For returns the snapshot for guests like c, and makes it first if it is missing, which
// takes as long as a boot with the start of the container engine. If several processes
// want the same snapshot, one makes it and the others wait. It removes a damaged
// snapshot. The error says why the guest has to boot.
func (s *Snapshots) For(ctx context.Context, c Config) (*Snapshot, error) {
	if err := c.checkFreezable(); err != nil {
		return nil, err
	}
	inputs, err := c.inputs(ctx)
	if err != nil {
		return nil, fmt.Errorf("find snapshot: %w", err)
	}
	dir := image.SnapshotDir(s.Cache, inputs)
	found, err := openSnapshot(dir, inputs)
	if !errors.Is(err, fs.ErrNotExist) {
		return found, err
	}
	b := image.Builder{Cache: s.Cache, Progress: s.Progress}
	unlock, err := b.LockSnapshots(ctx)
	if err != nil {
		return nil, err
	}
	defer unlock()
	if found, err = openSnapshot(dir, inputs); !errors.Is(err, fs.ErrNotExist) {
		return found, err
	}
	err = b.MakeSnapshot(ctx, dir, func(tmp string) error {
		s.report("freezing a guest with %d processors and %d MiB, to restore others from it (once)", c.VCPUs, c.Memory>>20)
		c.Progress = s.Progress
		return c.makeSnapshot(ctx, tmp, inputs)
	})
	if err != nil {
		return nil, err
	}
	return openSnapshot(dir, inputs)
}

// Report says why a guest has booted that was to be restored. s may be nil.
func (s *Snapshots) Report(g *Guest) {
	if s != nil && g.NotRestored != nil {
		s.report("%s boots: %s", g.Name, strings.ReplaceAll(g.NotRestored.Error(), "\n", "; "))
	}
}

func (s *Snapshots) report(format string, args ...any) {
	if s.Progress != nil {
		s.Progress(fmt.Sprintf(format, args...))
	}
}

// makeSnapshot makes the snapshot for guests like c in dir.
func (c Config) makeSnapshot(ctx context.Context, dir string, inputs []string) error {
	s := &Snapshot{Dir: dir, making: true}
	m, err := c.frozen(s).freeze(ctx)
	if err != nil {
		return err
	}
	m.Inputs = inputs
	return writeManifest(dir, m)
}

// openSnapshot opens the snapshot in dir and marks it as used. If there is none, the
// error wraps fs.ErrNotExist. A damaged snapshot is removed.
func openSnapshot(dir string, inputs []string) (*Snapshot, error) {
	m, err := readManifest(dir, inputs)
	if errors.Is(err, errDamaged) {
		return nil, errors.Join(fmt.Errorf("%w: removed %s", err, dir), os.RemoveAll(dir))
	}
	if err != nil {
		return nil, err
	}
	image.MarkUsed(dir)
	return &Snapshot{Dir: dir, manifest: m}, nil
}
