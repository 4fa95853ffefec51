package place

import (
	"crypto/rand"
	"strings"
)

// A command in another system is not our child: killing what carries it (an SSH
// channel, `nerdctl exec`) leaves it running. So a shell that leads the
// command's process group notes its number in a file while the command runs,
// and the command is killed by that number.

// pidFile returns a fresh path for the note.
func pidFile() string { return "/tmp/.unnest-" + rand.Text() }

// noted returns a command line that runs args, with env added, in a shell that
// keeps its own number in file meanwhile.
func noted(file string, env, args []string) []string {
	script := `echo $$ >"$0"; `
	if len(env) > 0 {
		script += "export " + quote(env) + "; "
	}
	return append([]string{"sh", "-c", script + `"$@"; code=$?; rm -f "$0"; exit $code`, file}, args...)
}

// killer returns a command line that kills the process group noted in file.
func killer(file string) []string {
	return []string{"sh", "-c", `kill -s KILL -- "-$(cat "$0")"; rm -f "$0"`, file}
}

// quote returns args as one line of a POSIX shell.
func quote(args []string) string {
	quoted := make([]string, len(args))
	for i, a := range args {
		quoted[i] = "'" + strings.ReplaceAll(a, "'", `'\''`) + "'"
	}
	return strings.Join(quoted, " ")
}
