package image

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"time"

	"golang.org/x/sys/unix"

	"unnest.io/unnest/internal/testbed/place"
)

// outputGrace is how long a killed command may keep its output open.
const outputGrace = 3 * time.Second

// run runs a command in a process namespace of its own, so that the end of ctx kills
// everything that it started, also processes that left its session, as those of dpkg
// do. The output goes to a log in the cache, which stays if the command fails. The error
// quotes the cause from it and names it.
func (b *Builder) run(ctx context.Context, env []string, args ...string) error {
	log, err := os.Create(filepath.Join(b.Cache, args[0]+".log"))
	if err != nil {
		return fmt.Errorf("create log of %s: %w", args[0], err)
	}
	cmd := exec.CommandContext(ctx, "unshare", append([]string{"--pid", "--fork", "--mount-proc", "--kill-child"}, args...)...)
	cmd.Env = append(os.Environ(), env...)
	cmd.SysProcAttr = &unix.SysProcAttr{Setpgid: true} // Ctrl-C at the terminal must not reach it
	cmd.WaitDelay = outputGrace
	cmd.Stdout, cmd.Stderr = log, log
	err = cmd.Run()
	_ = log.Close() // on a full disk the command fails, too
	if ctx.Err() != nil {
		return errors.Join(fmt.Errorf("%s: %w", args[0], context.Cause(ctx)), os.Remove(log.Name()))
	}
	if err != nil {
		out, _ := os.ReadFile(log.Name())
		return fmt.Errorf("run %s: %w: %s; see %s", args[0], err, causeOf(string(out)), log.Name())
	}
	return os.Remove(log.Name())
}

// packageError matches dpkg's error about a package that it could not install, and the
// last line of the package's script before it.
var packageError = regexp.MustCompile(`(?m)^.*\n(?:dpkg: error .*)$`)

// causeOf returns the cause of a failure from the output of a command. apt ends with a
// quote of its own command line, so the cause is dpkg's error; of other commands it is
// the last lines.
func causeOf(s string) string {
	if found := packageError.FindString(s); found != "" {
		return place.LastLines(found, 2)
	}
	return place.LastLines(s, 3)
}
