package place

import (
	"crypto/rand"
	"strings"
)

// A command in another system is not our child: it survives the end of the SSH channel or
// of the `nerdctl exec` that started it. A shell that leads the command's process group
// therefore writes its process ID to a file, by which the group can be killed.

// pidFile returns a new path.
func pidFile() string { return "/tmp/.unnest-" + rand.Text() }

// withPIDFile returns a command line that runs args, with env added, in a shell whose
// process ID is in file meanwhile.
func withPIDFile(file string, env, args []string) []string {
	script := `pid=$1; shift; echo $$ >"$pid"; `
	if len(env) > 0 {
		script += "export " + quote(env) + "; "
	}
	return append([]string{"sh", "-c", script + `"$@"; code=$?; rm -f "$pid"; exit $code`, "sh", file}, args...)
}

// killCommand returns a command line that kills the process group in file. A process
// that has just started may not have written the file yet.
func killCommand(file string) []string {
	const script = `tries=0; until [ -s "$1" ] || [ $tries = 10 ]; do tries=$((tries + 1)); sleep 0.1; done; ` +
		`kill -s KILL -- "-$(cat "$1")"; rm -f "$1"`
	return []string{"sh", "-c", script, "sh", file}
}

// quote returns args as one line for a POSIX shell.
func quote(args []string) string {
	quoted := make([]string, len(args))
	for i, a := range args {
		quoted[i] = "'" + strings.ReplaceAll(a, "'", `'\''`) + "'"
	}
	return strings.Join(quoted, " ")
}
