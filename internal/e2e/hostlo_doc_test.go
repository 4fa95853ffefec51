package e2e

import (
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
		cmd := exec.CommandContext(ctx, "bash", "-c", strings.ReplaceAll(command, "/run/unnest", os.Getenv("UNNEST_STATE")))
		cmd.Dir, cmd.WaitDelay = "../..", time.Second
		begin := time.Now()
		out, err := cmd.CombinedOutput()
		t.Logf("%.1f s: %s\n%s", time.Since(begin).Seconds(), command, out)
		if err != nil {
			t.Fatalf("%s: %v: %s", command, err, out)
		}
		for part, want := range printed {
			if !strings.Contains(command, part) {
				continue
			}
			if delete(printed, part); !strings.Contains(string(out), want) {
				t.Errorf("%s: printed %s, want %q", command, out, want)
			}
		}
	}
	for part := range printed {
		t.Errorf("docs/hostlo.md has no command with %q", part)
	}
}
