package machines

import (
	"context"
	"fmt"

	"unnest.io/unnest/internal/measure/machines/machine"
	"unnest.io/unnest/internal/measure/machines/sshhost"
	"unnest.io/unnest/internal/measure/stack"
)

// remote logs in to the host of a configuration. Its containers have the programs of our
// guests.
func (b *Set) remote(ctx context.Context, c stack.Configuration) (*machine.Machine, error) {
	run := b.Lab.Name
	layer, _ := c.Stack.Engine()
	if layer == stack.Docker {
		run += ".docker" // the run may use the host with another engine, too
	}
	r, m, err := sshhost.New(ctx, c, run)
	if err != nil {
		return nil, err
	}
	b.Note(fmt.Sprintf("Unnest does not see what else runs on %s: noise there only widens the intervals.", c.Host))
	r.Step, m.StartContainer = b.Images.Builder.Progress, r.Container
	m.StartEngine = func(ctx context.Context) error {
		note, err := r.StartEngine(ctx, sshhost.Engines(layer), m.Facts.Arch, b.Images.Archive)
		if err == nil {
			b.Note(note)
		}
		return err
	}
	return m, nil
}
