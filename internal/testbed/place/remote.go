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
	script := `note=$1; shift; echo $$ >"$note"; `
	if len(env) > 0 {
		script += "export " + quote(env) + "; "
	}
	return append([]string{"sh", "-c", script + `"$@"; code=$?; rm -f "$note"; exit $code`, "sh", file}, args...)
}

// killer returns a command line that kills the process group noted in file. One
// that has just been started may still be about to write it.
func killer(file string) []string {
	const script = `tries=0; until [ -s "$1" ] || [ $tries = 10 ]; do tries=$((tries + 1)); sleep 0.1; done; ` +
		`kill -s KILL -- "-$(cat "$1")"; rm -f "$1"`
	return []string{"sh", "-c", script, "sh", file}
}

// quote returns args as one line of a POSIX shell.
func quote(args []string) string {
	quoted := make([]string, len(args))
	for i, a := range args {
		quoted[i] = "'" + strings.ReplaceAll(a, "'", `'\''`) + "'"
	}
	return strings.Join(quoted, " ")
}
