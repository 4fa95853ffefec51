package e2e

import (
	"context"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"
)

// The commands that docs/brfusion.md and docs/hostlo.md have for trying things by hand work as the pages say.
func TestByHand(t *testing.T) {
	unnestBinary(t)
	for _, tt := range []struct {
		page, heading string
		printed       map[string]string // output, by a part of the command
	}{
		{"docs/brfusion.md", "## Try it", map[string]string{"busybox ip addr": "inet 10.201.1."}},
		{"docs/hostlo.md", "## Try it", map[string]string{
			"wget":         "hello from node1\n",
			"hostd status": "1 node1, 2 node2",
			"check":        " passed, 0 failed, 0 not there\n",
		}},
	} {
		t.Run(tt.page+" "+tt.heading, func(t *testing.T) {
			defer func() { mustRun(t, "../../bin/unnest", "vm", "down", "--all") }()
			byHand(t, documented(t, "../../"+tt.page, tt.heading), tt.printed)
		})
	}
}

func byHand(t *testing.T, commands []string, printed map[string]string) {
	t.Helper()
	ctx, cancel := beforeDeadline(t, 20*time.Second)
	defer cancel()
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
		t.Errorf("the page has no command with %q", part)
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
