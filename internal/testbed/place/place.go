// Package place is where a command runs: on this machine (in a network
// namespace of its own or not), behind SSH (our guests, and any host a user
// names), or inside a container of another place. Every place is reached in the
// same way, so that experiments never ask which kind they have.
//
// What the command is and what its output means does not belong here.
package place

import (
	"context"
	"io"
	"io/fs"
)

// Command is a program with its arguments, never a shell line.
type Command struct {
	Args   []string  // Args[0] is looked up in the place's PATH
	Env    []string  // KEY=value, added to the place's environment
	Stdin  io.Reader // nil: empty
	Stdout io.Writer // nil: discarded
	Stderr io.Writer // nil: discarded, its last lines kept for the error
}

// Place runs commands and takes files. Implementations are safe for concurrent
// use.
type Place interface {
	// Start starts c and returns at once. When ctx ends, the process and its
	// children in the place are killed; Wait still has to be called.
	Start(ctx context.Context, c Command) (Process, error)
	// Put writes content to the file at path in the place, whole or not at all.
	Put(ctx context.Context, path string, mode fs.FileMode, content io.Reader) error
	// String names the place for people: "host", "guest node1",
	// "container web in guest node1".
	String() string
}

// Process is a started command.
type Process interface {
	// Wait waits for the end. A non-zero exit is an *ExitError.
	Wait() error
}
