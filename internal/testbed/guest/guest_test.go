package guest

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"unnest.io/unnest/internal/testbed/place"
)

// patience is how long a test waits for things that take seconds.
const patience = 2 * time.Minute

// awaitConsole waits until the guest has printed text.
func awaitConsole(t *testing.T, g *Guest, text string) {
	t.Helper()
	for end := time.Now().Add(patience); ; time.Sleep(pollInterval) {
		content, err := os.ReadFile(g.path(consoleFile))
		if strings.Contains(string(content), text) {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("the guest does not print %q: %q (%v)", text, content, err)
		}
	}
}

// assertEnded checks that QEMU has ended, also for other processes.
func assertEnded(t *testing.T, g *Guest) {
	t.Helper()
	if err := g.Err(); !errors.Is(err, ErrDied) {
		t.Errorf("Err() = %v, want ErrDied", err)
	}
	if err := unix.Kill(g.PID, 0); !errors.Is(err, unix.ESRCH) {
		t.Errorf("process %d is left (%v)", g.PID, err)
	}
}

// The error of a guest that does not boot quotes its last output.
func TestGuestDoesNotBoot(t *testing.T) {
	privileged(t)
	image := testImage(t)
	garbage := filepath.Join(t.TempDir(), "root.ext4")
	if err := os.WriteFile(garbage, make([]byte, 1<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	tests := []struct {
		name   string
		change func(*Config)
		died   bool // QEMU ends, so that the error must be ErrDied
		words  string
	}{
		{"root image is garbage", func(c *Config) { c.Image.Root = garbage }, false, "no root disk"},
		{"no such processor", func(c *Config) { c.CPU = "z80" }, true, "unable to find CPU model 'z80'"},
		{"no such root image", func(c *Config) { c.Image.Root = "/no/such/root.ext4" }, true, "No such file or directory"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			l := testLab(t)
			_, signer := testKey(t)
			g := testGuest(t, l, image, signer, tt.change)
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			client, _, err := g.WaitReady(ctx, l.Dial, signer)
			if client != nil || !errors.Is(err, ErrBoot) || ctx.Err() != nil {
				t.Fatalf("got %v, %v; want ErrBoot before patience ends", client, err)
			}
			for _, want := range []string{"node1", tt.words} {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("%q is not in: %v", want, err)
				}
			}
			if tt.died && !errors.Is(err, ErrDied) {
				t.Errorf("got %v, want ErrDied", err)
			}
			if err := errors.Join(g.Kill(), g.Kill()); err != nil {
				t.Error(err)
			}
			assertEnded(t, g)
		})
	}
}

// The wait ends with the context, and when QEMU is killed. Killing twice is allowed.
func TestGuestBootIsCutShort(t *testing.T) {
	privileged(t)
	image, l := testImage(t), testLab(t)
	_, signer := testKey(t)
	g := testGuest(t, l, image, signer, func(*Config) {})

	why := errors.New("told to stop")
	ctx, cancel := context.WithCancelCause(t.Context())
	time.AfterFunc(200*time.Millisecond, func() { cancel(why) })
	start := time.Now()
	if _, _, err := g.WaitReady(ctx, l.Dial, signer); !errors.Is(err, ErrBoot) || !errors.Is(err, why) ||
		!strings.Contains(err.Error(), "; it was started by: qemu-system-x86_64 -name guest=node1") {
		t.Errorf("got %v, want ErrBoot because of %v, with the command line", err, why)
	}
	if d := time.Since(start); d > patience {
		t.Errorf("took %v to stop waiting", d)
	}
	if err := g.Err(); err != nil {
		t.Fatalf("the guest did not outlive the waiting: %v", err)
	}

	booted := make(chan error, 1)
	go func() {
		_, _, err := g.WaitReady(t.Context(), l.Dial, signer)
		booted <- err
	}()
	awaitConsole(t, g, bootMark+"init")
	if err := errors.Join(g.Kill(), g.Kill()); err != nil {
		t.Error(err)
	}
	select {
	case err := <-booted:
		if !errors.Is(err, ErrBoot) || !errors.Is(err, ErrDied) || !strings.Contains(err.Error(), "signal: killed") {
			t.Errorf("got %v, want ErrBoot with ErrDied: killed", err)
		}
	case <-time.After(patience):
		t.Fatal("waiting does not end with QEMU")
	}
	assertEnded(t, g)
	if err := g.PowerDown(t.Context()); err != nil {
		t.Errorf("power-down of a guest that is gone: %v", err)
	}
}

// A guest that hangs is reported and then given up, with what QEMU does, the console's end and
// QEMU's command line.
func TestGuestThatHangs(t *testing.T) {
	privileged(t)
	image, l := testImage(t), testLab(t)
	_, signer := testKey(t)
	var steps []string
	g := testGuest(t, l, image, signer, func(c *Config) {
		c.patience = limits{notice: time.Second, silent: 5 * time.Second, all: patience}
		c.Progress = func(step string) { steps = append(steps, step) }
	})
	awaitConsole(t, g, bootMark+"init")
	if err := g.Pause(t.Context()); err != nil {
		t.Fatal(err)
	}
	_, _, err := g.WaitReady(t.Context(), l.Dial, signer)
	if !errors.Is(err, ErrBoot) {
		t.Fatalf("got %v, want ErrBoot", err)
	}
	for _, want := range []string{"no output for 5s", "is paused and takes 0 % of a processor", "console.log ends: ", bootMark + "init", "qemu-system-x86_64 -name guest=node1"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q is not in: %v", want, err)
		}
	}
	if len(steps) != 3 || !strings.Contains(steps[0], "guest node1 is not ready after 1 s; QEMU (pid ") { // after 1, 2 and 4 s
		t.Errorf("reported: %q", steps)
	}
}

// Another process finds the guest by the PID of its QEMU, and refuses another process
// with that PID.
func TestAdopt(t *testing.T) {
	privileged(t)
	l := testLab(t)
	_, signer := testKey(t)
	g := testGuest(t, l, testImage(t), signer, func(*Config) {})
	config := Config{Name: g.Name, Dir: g.Dir}

	adopted, err := Adopt(config, g.PID)
	if err != nil {
		t.Fatal(err)
	}
	if err := adopted.Err(); err != nil {
		t.Errorf("the guest runs, but: %v", err)
	}
	for name, pid := range map[string]int{"this process": os.Getpid(), "nobody": ended(t), "no process": -1} {
		if got, err := Adopt(config, pid); got != nil || !errors.Is(err, ErrDied) {
			t.Errorf("pid %d, which is %s: got %v, %v; want ErrDied", pid, name, got, err)
		}
	}
	other := Config{Name: "node2", Dir: l.GuestDir("node2")}
	if got, err := Adopt(other, g.PID); got != nil || !errors.Is(err, ErrDied) {
		t.Errorf("pid of another guest: got %v, %v; want ErrDied", got, err)
	}

	if err := errors.Join(adopted.Kill(), adopted.Kill()); err != nil {
		t.Error(err)
	}
	<-g.Done() // both see it end
	assertEnded(t, adopted)
	if _, err := Adopt(config, g.PID); !errors.Is(err, ErrDied) {
		t.Errorf("after its end: got %v, want ErrDied", err)
	}
}

// ended returns the PID of a process that has ended.
func ended(t *testing.T) int {
	t.Helper()
	cmd := exec.Command("true")
	if err := cmd.Run(); err != nil {
		t.Fatal(err)
	}
	return cmd.Process.Pid
}

// Two labs use the same addresses, and their guests do not reach each other.
func TestTwoGuestsAtOnce(t *testing.T) {
	privileged(t)
	image := testImage(t)
	_, signer := testKey(t)
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	var group errgroup.Group
	boots := make([]string, 2)
	for i := range boots {
		l := testLab(t)
		g := testGuest(t, l, image, signer, func(*Config) {})
		group.Go(func() error {
			client, times, err := g.WaitReady(ctx, l.Dial, signer)
			if err != nil {
				return err
			}
			if sum := times.Firmware + times.Kernel + times.Userspace + times.SSH; sum != times.Total || times.Total <= 0 {
				t.Errorf("boot %+v: the parts sum to %v", times, sum)
			}
			out, err := place.Output(ctx, client, "cat", "/proc/sys/kernel/random/boot_id")
			boots[i] = string(out)
			return errors.Join(err, client.Close(), g.Kill())
		})
	}
	if err := group.Wait(); err != nil {
		t.Fatal(err)
	}
	if boots[0] == boots[1] {
		t.Errorf("both have the boot id %s", boots[0])
	}
}
