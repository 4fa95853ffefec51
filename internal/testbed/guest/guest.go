// Package guest boots, freezes, restores and stops QEMU guests, also of other architectures and
// in other guests.
//
// It knows nothing about labs, experiments and pods.
package guest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"unnest.io/unnest/internal/testbed/image"

	"golang.org/x/sys/unix"

	"unnest.io/unnest/internal/netdev/tap"
	"unnest.io/unnest/internal/vmm/qmp"
)

// The errors that callers distinguish.
var (
	ErrBoot = errors.New("guest did not boot") // with the last lines of its console
	ErrDied = errors.New("guest died")
)

// Guest is a running guest.
type Guest struct {
	Config
	PID     int // of QEMU; 0: it runs in another guest
	started time.Time
	resumed time.Time     // when it ran again; zero: it booted
	stop    func()        // ends QEMU if PID is 0
	done    chan struct{} // closed when QEMU has ended; nil when it is not our child
	exit    error
}

// Start starts QEMU and returns at once. The guest lives on after ctx and after this
// process: Kill or PowerDown ends it. A guest that cannot be restored boots.
func Start(ctx context.Context, c Config) (*Guest, error) {
	g, err := c.start(ctx)
	if err != nil {
		return nil, fmt.Errorf("start guest %s: %w", c.Name, err)
	}
	return g, nil
}

func (c Config) start(ctx context.Context) (*Guest, error) {
	if err := errors.Join(c.check(), c.checkSocket()); err != nil {
		return nil, err
	}
	image.MarkUsed(filepath.Dir(c.Image.Root))
	if c.CPU == NestingCPU {
		version, err := qemuVersion(ctx, QEMU(c.Arch))
		if err != nil {
			return nil, err
		}
		c.CPU = NestingCPUFor(version)
	}
	if c.Snapshot != nil {
		g, err := c.restore(ctx)
		if err == nil || ctx.Err() != nil {
			return g, err
		}
		c.Snapshot, c.NotRestored = nil, err
	}
	seed, err := c.Seed.Archive()
	if err == nil {
		err = os.WriteFile(c.path(seedFile), seed, 0o600)
	}
	if err != nil {
		return nil, err
	}
	return c.startQEMU(false)
}

// checkSocket refuses a directory in which no socket can be.
func (c Config) checkSocket() error {
	if len(c.DaemonQMP()) > maxSocket {
		return fmt.Errorf("socket %s: want a path of at most %d bytes: choose a shorter name, or set UNNEST_STATE to a shorter directory", c.DaemonQMP(), maxSocket)
	}
	return nil
}

// maxSocket is how many bytes the path of a socket may have, unix(7).
const maxSocket = 107

// check refuses what QEMU would accept silently, or refuse in words of its own.
func (c Config) check() error {
	if err := c.Arch.Check(); err != nil {
		return err
	}
	switch a := c.Arch.OrAMD64(); {
	case c.Slots > MaxSlots:
		return fmt.Errorf("%d slots: want at most %d", c.Slots, MaxSlots)
	case c.Slots > 0 && !machineOf(a).slots:
		return fmt.Errorf("%d slots: NICs cannot be plugged into a guest of %s: want 0", c.Slots, a)
	case c.Accel == KVM && string(a) != runtime.GOARCH:
		return fmt.Errorf("KVM runs guests of %s here, the guest is %s: use --accel auto or tcg", runtime.GOARCH, a)
	case c.Emulated && a != image.AMD64:
		return fmt.Errorf("emulated hardware is of amd64, the guest is %s", a)
	case c.Emulated && c.VHostPoll > 0:
		return fmt.Errorf("poll by vhost-net for %v: emulated NICs do not use vhost-net", c.VHostPoll)
	case c.Image.Arch.OrAMD64() != a:
		return fmt.Errorf("the image is for %s, the guest is %s", c.Image.Arch.OrAMD64(), a)
	case c.Image.Hypervisor != "" && strings.Contains(c.Image.Compressed+c.Image.Initrd, " "):
		return fmt.Errorf("the image in %s: a blank ends the name of a module of Xen: set UNNEST_CACHE to a path without blanks", filepath.Dir(c.Image.Initrd))
	}
	return cmp.Or(tap.CheckPoll(c.VHostPoll), c.checkShares())
}

// Restored reports whether the guest was restored from a snapshot. Else it has booted.
func (g *Guest) Restored() bool { return !g.resumed.IsZero() }

// Done is closed when QEMU has ended.
func (g *Guest) Done() <-chan struct{} { return g.done }

// Err says why the guest has ended, with the last lines of its console, or its kernel's
// fault, and of QEMU's output. It returns nil while the guest runs.
func (g *Guest) Err() error {
	select {
	case <-g.done:
	default:
		return nil
	}
	if g.exit == nil {
		return fmt.Errorf("%w: %s: QEMU ended%s", ErrDied, g.Name, g.LogTails())
	}
	return fmt.Errorf("%w: %s: QEMU: %w%s", ErrDied, g.Name, g.exit, g.LogTails())
}

// LogTails quotes the last lines of QEMU's output and of the guest's console, or its kernel's fault:
// "; console.log ends: …". It is empty if there are none.
func (g *Guest) LogTails() string {
	var b strings.Builder
	for _, file := range []string{qemuFile, consoleFile} {
		content, err := os.ReadFile(g.path(file))
		if tail := endOf(string(content)); err == nil && tail != "" {
			fmt.Fprintf(&b, "; %s ends: %s", filepath.Base(file), tail)
		}
	}
	return b.String()
}

// Pause stops the processors of the guest. Its clock stands still until Resume.
func (g *Guest) Pause(ctx context.Context) error {
	return g.tell(ctx, "pause", func(c *qmp.Client) error { _, err := c.Stop(ctx); return err })
}

// Resume lets a paused guest run again.
func (g *Guest) Resume(ctx context.Context) error {
	return g.tell(ctx, "resume", func(c *qmp.Client) error { _, err := c.Cont(ctx); return err })
}

// tell connects to QEMU and calls say.
func (g *Guest) tell(ctx context.Context, what string, say func(*qmp.Client) error) error {
	client, err := qmp.Dial(ctx, g.path(ownerQMP))
	if err == nil {
		err = errors.Join(say(client), client.Close())
	}
	if err != nil {
		return fmt.Errorf("%s guest %s: %w", what, g.Name, err)
	}
	return nil
}

// PowerDown presses the guest's power button and waits for its end. It kills a guest
// that does not end in time.
func (g *Guest) PowerDown(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, powerDownLimit)
	defer cancel()
	if g.pressPowerButton(ctx) == nil {
		return nil
	}
	return g.Kill()
}

// pressPowerButton returns when the guest has ended, or with an error at the end of ctx.
func (g *Guest) pressPowerButton(ctx context.Context) error {
	if err := g.tell(ctx, "power down", func(c *qmp.Client) error { return c.Execute(ctx, "system_powerdown", nil, nil) }); err != nil {
		return err
	}
	select {
	case <-g.done:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

const (
	powerDownLimit = 10 * time.Second
	killLimit      = 30 * time.Second // a busy machine takes seconds to free a guest's memory
)

// Kill kills QEMU and waits for its end.
func (g *Guest) Kill() error {
	select {
	case <-g.done:
		return nil
	default:
	}
	if g.stop != nil {
		g.stop()
	} else if err := unix.Kill(g.PID, unix.SIGKILL); err != nil && !errors.Is(err, unix.ESRCH) {
		return fmt.Errorf("kill guest %s: %w", g.Name, err)
	}
	select {
	case <-g.done:
		return nil
	case <-time.After(killLimit):
		return fmt.Errorf("kill guest %s: QEMU (pid %d) does not end", g.Name, g.PID)
	}
}

// Adopt returns a guest that another process started, or an error that wraps ErrDied if
// it has ended. c needs no seed.
func Adopt(c Config, pid int) (*Guest, error) {
	g := &Guest{Config: c, PID: pid, done: make(chan struct{})}
	fd, err := unix.PidfdOpen(pid, 0)
	if err == nil {
		// The PID may belong to another process by now.
		if !strings.Contains(commandLine(pid), c.path(ownerQMP)) {
			err = errors.Join(unix.ESRCH, unix.Close(fd))
		}
	}
	if err != nil {
		close(g.done)
		return nil, fmt.Errorf("%w: %s: QEMU (pid %d) is gone%s", ErrDied, c.Name, pid, g.LogTails())
	}
	go func() {
		defer close(g.done)
		for errors.Is(err, unix.EINTR) || err == nil {
			if _, err = unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, -1); err == nil {
				break
			}
		}
		g.exit = errors.Join(err, unix.Close(fd))
	}()
	return g, nil
}

// commandLine returns the arguments of a process, empty when it has ended. A process
// has none for a moment after exec.
func commandLine(pid int) string {
	for range 10 {
		line, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
		if err != nil || len(line) > 0 {
			return string(line)
		}
		time.Sleep(pollInterval)
	}
	return ""
}
