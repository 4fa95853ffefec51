package guest

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"unnest.io/unnest/internal/vmm/qmp"
)

// control are this process's ends of the console and the monitor of a guest that is
// frozen or restored.
type control struct {
	console net.Conn
	monitor *qmp.Client
}

// startControlled starts QEMU with further files after its ends of console and monitor. With tied,
// it ends with this process.
func (c Config) startControlled(ctx context.Context, seed []byte, tied bool, files ...*os.File) (_ *Guest, _ *control, err error) {
	if err := os.WriteFile(c.path(seedFile), seed, 0o600); err != nil {
		return nil, nil, err
	}
	console, consoleEnd, err := socketPair("console")
	if err != nil {
		return nil, nil, err
	}
	monitor, monitorEnd, err := socketPair("monitor")
	if err != nil {
		return nil, nil, errors.Join(err, console.Close(), consoleEnd.Close())
	}
	g, err := c.startQEMU(tied, append([]*os.File{consoleEnd, monitorEnd}, files...)...)
	// With a copy of these, the end of QEMU would not end the connections.
	if err = errors.Join(err, consoleEnd.Close(), monitorEnd.Close()); err != nil {
		return nil, nil, errors.Join(err, console.Close(), monitor.Close())
	}
	var client *qmp.Client
	err = g.watched(ctx, func(ctx context.Context) (err error) { client, err = qmp.New(ctx, monitor); return err })
	if err != nil {
		return nil, nil, errors.Join(g.because(ctx, err), g.Kill(), console.Close())
	}
	return g, &control{console, client}, nil
}

// because adds to err why QEMU has ended, or what it does if it runs. A QEMU that has closed its
// connections ends soon.
func (g *Guest) because(ctx context.Context, err error) error {
	if errors.Is(err, ErrBoot) { // says what it does
		return err
	}
	select {
	case <-g.done:
	case <-ctx.Done():
	case <-time.After(stopGrace):
	}
	if died := g.Err(); died != nil {
		return fmt.Errorf("%w: %w", err, died)
	}
	launch := bootWait{change: sight{at: g.started}}
	return fmt.Errorf("%w; %s", err, g.stuck(context.WithoutCancel(ctx), launch.share(g.sight()), nil))
}

// socketPair returns the two ends of a connection, the second one for another process.
func socketPair(name string) (net.Conn, *os.File, error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("connect to the %s: %w", name, err)
	}
	ours, theirs := os.NewFile(uintptr(fds[0]), name), os.NewFile(uintptr(fds[1]), name)
	conn, err := net.FileConn(ours) // with a copy of the descriptor
	if err = errors.Join(err, ours.Close()); err != nil {
		return nil, nil, errors.Join(err, theirs.Close())
	}
	return conn, theirs, nil
}

// startQEMU starts QEMU with files after the TAPs. With tied, the kernel kills it when
// this process ends.
func (c Config) startQEMU(tied bool, files ...*os.File) (*Guest, error) {
	log, err := os.Create(c.path(qemuFile))
	if err != nil {
		return nil, err
	}
	defer log.Close()
	cmd := exec.Command(QEMU(c.Arch), c.withCounter().arguments()...)
	cmd.Stdout, cmd.Stderr = log, log
	for _, nic := range c.NICs {
		cmd.ExtraFiles = append(cmd.ExtraFiles, nic.TAP)
	}
	cmd.ExtraFiles = append(cmd.ExtraFiles, files...)
	cmd.SysProcAttr = &unix.SysProcAttr{Setsid: true} // Ctrl-C at the terminal must not reach QEMU
	if tied {
		cmd.SysProcAttr.Pdeathsig = unix.SIGKILL
	}
	g := &Guest{Config: c, started: time.Now(), done: make(chan struct{})}
	started := make(chan error)
	go func() {
		if tied { // the signal is sent when the thread ends that has started the process
			runtime.LockOSThread()
		}
		err := cmd.Start()
		started <- err
		if err == nil {
			g.exit = cmd.Wait()
			close(g.done)
		}
	}()
	if err := <-started; err != nil {
		return nil, fmt.Errorf("%w: run `unnest doctor` to see what to install", err)
	}
	g.PID = cmd.Process.Pid
	return g, nil
}

// lines calls f with each line of the console until it reports that it is done. It ends
// with ctx and with QEMU.
func (c *control) lines(ctx context.Context, f func(line string) (done bool, err error)) error {
	stop := context.AfterFunc(ctx, func() { _ = c.console.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()
	for r := bufio.NewReader(c.console); ; {
		line, err := r.ReadString('\n')
		if err != nil {
			if ctx.Err() != nil {
				err = context.Cause(ctx)
			}
			return fmt.Errorf("read its console: %w", err)
		}
		if done, err := f(strings.TrimSpace(line)); done || err != nil {
			return err
		}
	}
}

// say writes a line to the console.
func (c *control) say(format string, args ...any) error {
	_, err := fmt.Fprintf(c.console, format+"\n", args...)
	return err
}
