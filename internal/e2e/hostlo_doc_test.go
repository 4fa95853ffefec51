package e2e

import (
	"context"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"
)

// The commands in docs/hostlo.md work as the page says.
func TestHostloByHand(t *testing.T) {
	unnestBinary(t)
	printed := map[string]string{ // output, by a part of the command
		"wget":         "hello from node1\n",
		"hostd status": "1 node1, 2 node2",
		"check":        " passed, 0 failed, 0 not there\n",
	}
	commands := documented(t, "../../docs/hostlo.md", "## Try it")
	ctx, cancel := beforeDeadline(t, 20*time.Second)
	defer cancel()
	defer func() { mustRun(t, "../../bin/unnest", "vm", "down", "--all") }()
	for _, command := range commands {
		if strings.HasPrefix(command, "make ") {
			continue
		}
		want := ""
		for part, text := range printed {
			if strings.Contains(command, part) {
				delete(printed, part)
				want = text
			}
		}
		for begin := time.Now(); ; time.Sleep(time.Second) {
			out, err := execute(ctx, t, command)
			if err == nil && strings.Contains(out, want) {
				break
			}
			// On a busy machine a reader has to wait before the servers answer, too.
			if want == "" || time.Since(begin) > endLimit {
				t.Fatalf("%s: %v: printed %s, want %q", command, err, out, want)
			}
		}
	}
	for part := range printed {
		t.Errorf("docs/hostlo.md has no command with %q", part)
	}
}

// execute runs a command of a page in the source tree.
func execute(ctx context.Context, t *testing.T, command string) (string, error) {
	t.Helper()
	cmd := exec.CommandContext(ctx, "bash", "-c", strings.ReplaceAll(command, "/run/unnest", os.Getenv("UNNEST_STATE")))
	cmd.Dir, cmd.WaitDelay = "../..", time.Minute
	begin := time.Now()
	out, err := cmd.CombinedOutput()
	t.Logf("%.1f s: %s\n%s", time.Since(begin).Seconds(), command, out)
	return string(out), err
}
