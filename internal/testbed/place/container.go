package place

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"time"
)

// containerAnswerTime limits the killing of a command. To enter a container takes an
// emulated guest a second or two.
var containerAnswerTime = answerTime{stopped: 4 * time.Second, late: 30 * time.Second}

// Container is a running container of another place, entered by an engine with Docker's
// command line (nerdctl, docker, podman). It needs sh, cat, kill, rm and sleep inside.
// An engine makes each command the leader of its process group.
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
	outer := command
	outer.Env = nil
	outer.Args = append([]string{c.Engine, "exec", "--interactive", c.Name}, withPIDFile(file, command.Env, command.Args)...)
	outerCtx, drop := context.WithCancelCause(context.WithoutCancel(ctx))
	process, err := c.Place.Start(outerCtx, outer)
	if err != nil {
		drop(nil)
		return nil, err
	}
	p := &containerProcess{outer: process, drop: drop, place: c.String(), args: command.Args, killed: make(chan struct{})}
	p.stop = context.AfterFunc(ctx, func() {
		defer close(p.killed)
		defer drop(context.Cause(ctx)) // the cause says how long the engine may take to end
		killing, cancel := context.WithCancel(context.WithoutCancel(ctx))
		defer cancel()
		defer time.AfterFunc(containerAnswerTime.after(ctx), cancel).Stop()
		_ = Run(killing, c.Place, append([]string{c.Engine, "exec", c.Name}, killCommand(file)...)...) // fails if the process has ended
	})
	return p, nil
}

type containerProcess struct {
	outer  Process                 // the engine, which passes input and output on
	drop   context.CancelCauseFunc // kills the engine
	place  string
	args   []string
	stop   func() bool
	killed chan struct{}
}

// Wait waits for the command, and for its killing if ctx has ended.
func (p *containerProcess) Wait() error {
	defer p.drop(nil)
	err := p.outer.Wait()
	if !p.stop() {
		<-p.killed
	}
	var exit *ExitError
	if errors.As(err, &exit) { // the engine passes on the code and output of the command
		return &ExitError{Place: p.place, Args: p.args, Code: exit.Code, Stderr: exit.Stderr}
	}
	return err
}

// Put writes a file in the container.
func (c Container) Put(ctx context.Context, path string, mode fs.FileMode, content io.Reader) error {
	return put(ctx, c, path, mode, content)
}
