package place

import (
	"context"
	"io"
	"io/fs"
	"slices"
)

// Within is a part of another place that a tool enters, such as a mount namespace with
// another root directory. The tool must exec the command, so that killing one kills the
// other.
type Within struct {
	Place Place
	Enter []string // the tool and its arguments, before those of the command
	Env   []string // KEY=value, for every command
	Name  string   // for people
}

// String names the place.
func (w Within) String() string { return w.Name }

// Start starts the command inside.
func (w Within) Start(ctx context.Context, c Command) (Process, error) {
	c.Args = slices.Concat(w.Enter, c.Args)
	c.Env = slices.Concat(w.Env, c.Env)
	return w.Place.Start(ctx, c)
}

// Put writes a file inside.
func (w Within) Put(ctx context.Context, path string, mode fs.FileMode, content io.Reader) error {
	return put(ctx, w, path, mode, content)
}
