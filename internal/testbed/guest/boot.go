package guest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"regexp"
	"strings"
	"time"

	"golang.org/x/crypto/ssh"

	"unnest.io/unnest/internal/testbed/place"
	"unnest.io/unnest/internal/vmm/qmp"
)

// BootTimes divides the time from launch to ready. Kernel and Userspace are measured by
// the guest's clock. Firmware and SSH are the rest of the host's time. Of a restored
// guest, Firmware is the time until it runs again, and Kernel is 0.
type BootTimes struct {
	Firmware  time.Duration // QEMU's start and firmware, until the kernel's clock starts
	Kernel    time.Duration // until the kernel runs the first process
	Userspace time.Duration // until the services are started
	SSH       time.Duration // until a login over SSH has succeeded
	Total     time.Duration
}

// WaitReady waits until a command can run over SSH and returns the connection. If the
// guest ends first, panics, or is not ready when ctx ends, the error wraps ErrBoot and
// quotes the console. So it does if the guest hangs: it prints nothing for minutes, although
// it has the processor, or takes many minutes in all. A long wait is reported to g.Progress.
func (g *Guest) WaitReady(ctx context.Context, dial place.Dialer, key ssh.Signer) (*place.SSH, BootTimes, error) {
	c := console{path: g.path(consoleFile)}
	wait := newBootWait(g.limits(), g.sight())
	var refused error // the last login
	for {
		if err := g.Err(); err != nil {
			return nil, BootTimes{}, fmt.Errorf("%w: %w", ErrBoot, err)
		}
		c.look()
		if c.failed != "" {
			return nil, BootTimes{}, fmt.Errorf("%w: %s: %s%s", ErrBoot, g.Name, c.failed, g.LogTails())
		}
		if c.services.seen() {
			if err := c.checkClock(g.running()); err != nil {
				return nil, BootTimes{}, fmt.Errorf("%w: %s: %w", ErrBoot, g.Name, err)
			}
			client, err := g.login(ctx, dial, key)
			if err == nil {
				return client, c.times(g.started, g.resumed, time.Now()), nil
			}
			refused = err
		}
		if err := g.see(ctx, &wait, refused); err != nil {
			return nil, BootTimes{}, err
		}
		if err := sleep(ctx, pollInterval); err != nil {
			return nil, BootTimes{}, fmt.Errorf("%w: %s: not ready after %.0f s: %w; %s",
				ErrBoot, g.Name, time.Since(g.started).Seconds(), err, g.stuck(context.WithoutCancel(ctx), wait.share(g.sight()), refused))
		}
	}
}

// see looks at the guest during wait. It reports a long wait to g.Progress. The error wraps ErrBoot
// and says that the guest hangs. refused is why the last login failed.
func (g *Guest) see(ctx context.Context, wait *bootWait, refused error) error {
	s := g.sight()
	due, hung := wait.see(s)
	if hung != "" {
		return fmt.Errorf("%w: %s: %s; %s", ErrBoot, g.Name, hung, g.stuck(ctx, wait.share(s), refused))
	}
	if due && g.Progress != nil {
		g.Progress(fmt.Sprintf("guest %s is not ready after %.0f s; %s", g.Name, s.at.Sub(wait.started).Seconds(), g.doing(ctx, wait.share(s), refused)))
	}
	return nil
}

// watched calls f with a context that ends when the guest hangs. The error then wraps ErrBoot and says so.
// A long wait is reported to g.Progress.
func (g *Guest) watched(ctx context.Context, f func(context.Context) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for wait := newBootWait(g.limits(), g.sight()); sleep(ctx, pollInterval) == nil; {
			if err := g.see(ctx, &wait, nil); err != nil {
				cancel(err)
			}
		}
	}()
	defer func() { cancel(nil); <-ended }()
	err := f(ctx)
	if cause := context.Cause(ctx); err != nil && cause != nil && !errors.Is(err, cause) {
		err = fmt.Errorf("%w: %w", err, cause)
	}
	return err
}

// doing says what QEMU does, that SSH refuses a login, and how the logs end.
func (g *Guest) doing(ctx context.Context, processors float64, refused error) string {
	text := "QEMU runs in its outer guest"
	if g.PID != 0 {
		text = fmt.Sprintf("QEMU (pid %d) is %s and takes %.0f %% of a processor", g.PID, g.status(ctx), 100*processors)
	}
	if refused != nil {
		text += fmt.Sprintf("; its services run, but SSH fails: %v", refused)
	}
	if tails := g.LogTails(); tails != "" {
		return text + tails
	}
	return text + "; its console is empty"
}

// stuck is doing, with QEMU's command line.
func (g *Guest) stuck(ctx context.Context, processors float64, refused error) string {
	return g.doing(ctx, processors, refused) + g.launchedBy()
}

// status asks QEMU for its state, such as running or paused.
func (g *Guest) status(ctx context.Context) string {
	ctx, cancel := context.WithTimeout(ctx, statusLimit)
	defer cancel()
	var answer struct{ Status string }
	if err := g.tell(ctx, "ask", func(c *qmp.Client) error { return c.Execute(ctx, "query-status", nil, &answer) }); err != nil {
		return "silent on its monitor"
	}
	return answer.Status
}

const statusLimit = 5 * time.Second

// launchedBy quotes QEMU's command line.
func (g *Guest) launchedBy() string {
	if g.PID == 0 {
		return ""
	}
	return "; it was started by: " + strings.TrimSpace(strings.ReplaceAll(commandLine(g.PID), "\x00", " "))
}

// running returns since when the guest runs: its launch, or when it was restored.
func (g *Guest) running() time.Time {
	if g.resumed.IsZero() {
		return g.started
	}
	return g.resumed
}

// login connects to the guest's SSH server, whose host key must be that of the seed.
func (g *Guest) login(ctx context.Context, dial place.Dialer, key ssh.Signer) (*place.SSH, error) {
	host, err := ssh.NewPublicKey(g.Seed.HostKey.Public())
	if err != nil {
		return nil, err
	}
	return place.DialSSH(ctx, "guest "+g.Name, g.Address, dial, ClientConfig(key, host))
}

// ClientConfig returns the configuration to log in to a guest as root, by key. The
// server must have the key host.
func ClientConfig(key ssh.Signer, host ssh.PublicKey) *ssh.ClientConfig {
	return &ssh.ClientConfig{
		User:              "root",
		Auth:              []ssh.AuthMethod{ssh.PublicKeys(key)},
		HostKeyCallback:   ssh.FixedHostKey(host),
		HostKeyAlgorithms: []string{ssh.KeyAlgoED25519},
		Timeout:           loginLimit,
	}
}

const loginLimit = 5 * time.Second

// console reads the marks that the guest's scripts print during the boot.
type console struct {
	path                      string
	init, userspace, services mark
	restored                  mark // the guest runs again
	failed                    string
}

// mark is a point of the boot on both clocks.
type mark struct {
	uptime time.Duration // the guest's, since its kernel started
	at     time.Time     // the host's, when the mark was first seen
}

func (m mark) seen() bool { return !m.at.IsZero() }

const bootMark = "unnest-boot "

// look reads the console again.
func (c *console) look() {
	content, err := os.ReadFile(c.path)
	if err != nil {
		return // QEMU has not created it yet
	}
	c.read(string(content), time.Now())
}

func (c *console) read(content string, now time.Time) {
	marks := map[string]*mark{"init": &c.init, "userspace": &c.userspace, "services": &c.services, "restored": &c.restored}
	for line := range strings.Lines(content) {
		if !strings.HasSuffix(line, "\n") {
			return // incomplete
		}
		if strings.Contains(line, "Kernel panic") {
			c.failed = cmp.Or(c.failed, strings.TrimSpace(line))
		}
		_, text, ok := strings.Cut(line, bootMark)
		if !ok {
			continue
		}
		if cause, ok := strings.CutPrefix(text, "failed: "); ok {
			c.failed = cmp.Or(c.failed, strings.TrimSpace(cause))
			continue
		}
		name, seconds, _ := strings.Cut(strings.TrimSpace(text), " ")
		if m := marks[name]; m != nil && !m.seen() {
			if uptime, err := time.ParseDuration(seconds + "s"); err == nil && uptime >= 0 {
				*m = mark{uptime, now}
			}
		}
	}
}

// checkClock refuses a guest that has been up for longer than its QEMU. Time limits in such a
// guest end too early, and figures from it are wrong. A kernel that measures the frequency of
// its processor on a busy host causes that: see withCounter. A mark that is seen late hides the
// error.
func (c *console) checkClock(started time.Time) error {
	passed, uptime := c.services.at.Sub(started), c.services.uptime-c.restored.uptime
	if uptime <= passed*11/10 {
		return nil
	}
	return fmt.Errorf("check its clock: %.0f s there were %.0f s here; start the guest again when this machine is less busy",
		uptime.Seconds(), passed.Seconds())
}

// times divides the boot from started to ready. resumed is when a restored guest ran
// again, else zero.
func (c *console) times(started, resumed, ready time.Time) BootTimes {
	if !resumed.IsZero() {
		// QEMU's time of the resumption has no monotonic part, as the others have.
		firmware := resumed.Sub(started)
		return BootTimes{
			Firmware: firmware, Userspace: c.services.at.Sub(started) - firmware, SSH: ready.Sub(c.services.at), Total: ready.Sub(started),
		}
	}
	return BootTimes{
		Firmware:  c.services.at.Sub(started) - c.services.uptime,
		Kernel:    c.init.uptime,
		Userspace: c.services.uptime - c.init.uptime,
		SSH:       ready.Sub(c.services.at),
		Total:     ready.Sub(started),
	}
}

const (
	pollInterval = 20 * time.Millisecond // for things that send no event
	stopGrace    = 3 * time.Second       // for a process to end before it is killed
)

// sleep waits for d or returns why ctx ended.
func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(d):
		return nil
	}
}

// kernelFault matches the lines in which Linux says what the fault was that it panics after,
// and in which function. Registers and code follow.
var kernelFault = regexp.MustCompile(`(?m)^.*(?:BUG: |Oops: |general protection fault|kernel BUG at|RIP: ).*$`)

// endOf returns the last lines of a console, or the kernel's fault and the last line.
func endOf(console string) string {
	fault := kernelFault.FindAllString(console, 3)
	if fault == nil {
		return place.LastLines(console, 3)
	}
	return place.LastLines(strings.Join(append(fault, place.LastLines(console, 1)), "\n"), 4)
}
