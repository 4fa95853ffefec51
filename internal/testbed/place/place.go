// Package place runs commands and writes files on this machine (also in another
// network namespace), behind SSH (in our guests, and on any host that a user names) and
// in containers of another place, all through one interface.
//
// It does not know what the commands are, or what their output means.
package place

import (
	"context"
	"io"
	"io/fs"
	"slices"
)

// Command is a command line, never a line for a shell.
type Command struct {
	Args   []string  // Args[0] is looked up in the place's PATH
	Env    []string  // KEY=value, added to the place's environment
	Stdin  io.Reader // nil: empty
	Stdout io.Writer // nil: discarded
	Stderr io.Writer // nil: discarded, except for the last lines, which are in the error
}

// Place runs commands and takes files. Implementations are safe for concurrent use.
type Place interface {
	// Start starts c and returns at once. When ctx ends, the process and its children in
	// the place are killed. The caller must still call Wait.
	Start(ctx context.Context, c Command) (Process, error)
	// Put writes content to the file at path in the place, completely or not at all.
	Put(ctx context.Context, path string, mode fs.FileMode, content io.Reader) error
	// String names the place for people: "this host", "guest node1", "container web in
	// guest node1".
	String() string
}

// Process is a started command.
type Process interface {
	// Wait waits for the end. The error for an exit code other than 0 is an *ExitError.
	Wait() error
}

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
