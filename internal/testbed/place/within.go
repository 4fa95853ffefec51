package place

import (
	"context"
	"io"
	"io/fs"
	"slices"
)

// Within is what a program enters from another place, such as a mount namespace
// and another root directory. The program has to become the command (exec), so that
// killing the one kills the other.
type Within struct {
	Place Place
	Enter []string // the program and its arguments, the command comes after them
	Env   []string // KEY=value, of every command
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
