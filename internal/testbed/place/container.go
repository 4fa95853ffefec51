package place

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"time"
)

// containerPatience bounds the killing of a command: entering a container takes a
// second or two in an emulated guest.
var containerPatience = patience{stopped: 4 * time.Second, late: 30 * time.Second}

// Container is a running container of another place, entered by an engine with
// Docker's command line (nerdctl, docker, podman). It needs sh, cat, kill, rm
// and sleep inside; an engine makes each command the leader of its group.
type Container struct {
	Place  Place
	Engine string // "nerdctl"
	Name   string
}

// String names the place.
func (c Container) String() string { return fmt.Sprintf("container %s in %s", c.Name, c.Place) }

// Start starts the command in the container.
func (c Container) Start(ctx context.Context, command Command) (Process, error) {
	file := pidFile()
	carried := command
	carried.Env = nil
	carried.Args = append([]string{c.Engine, "exec", "--interactive", c.Name}, noted(file, command.Env, command.Args)...)
	carrying, drop := context.WithCancelCause(context.WithoutCancel(ctx))
	process, err := c.Place.Start(carrying, carried)
	if err != nil {
		drop(nil)
		return nil, err
	}
	p := &containerProcess{carrier: process, drop: drop, place: c.String(), args: command.Args, killed: make(chan struct{})}
	p.stop = context.AfterFunc(ctx, func() {
		defer close(p.killed)
		defer drop(ctx.Err())
		killing, cancel := context.WithCancel(context.WithoutCancel(ctx))
		defer cancel()
		defer time.AfterFunc(containerPatience.after(ctx), cancel).Stop()
		_ = Run(killing, c.Place, append([]string{c.Engine, "exec", c.Name}, killer(file)...)...) // gone already: nothing to kill
	})
	return p, nil
}

type containerProcess struct {
	carrier Process                 // the engine, which carries the command's input and output
	drop    context.CancelCauseFunc // kills the carrier
	place   string
	args    []string
	stop    func() bool
	killed  chan struct{}
}

// Wait waits for the command, and for its killing when that was asked for.
func (p *containerProcess) Wait() error {
	defer p.drop(nil)
	err := p.carrier.Wait()
	if !p.stop() {
		<-p.killed
	}
	var exit *ExitError
	if errors.As(err, &exit) { // the engine passes on the command's code and words
		return &ExitError{Place: p.place, Args: p.args, Code: exit.Code, Stderr: exit.Stderr}
	}
	return err
}

// Put writes a file in the container.
func (c Container) Put(ctx context.Context, path string, mode fs.FileMode, content io.Reader) error {
	return put(ctx, c, path, mode, content)
}
