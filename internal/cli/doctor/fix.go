package doctor

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"

	"unnest.io/unnest/internal/cli/terminal"
	"unnest.io/unnest/internal/testbed/doctor"
)

// fix prints the command that installs the packages that checks miss or, with --yes, runs it
// and examines the machine again.
func fix(ctx context.Context, opts Options, checks []doctor.Check) error {
	packages := doctor.Packages(checks)
	if len(packages) == 0 {
		fmt.Fprintln(opts.Streams.Err, "no package is missing")
		return lacks(doctor.Unmet(checks))
	}
	if _, err := opts.Probes.LookPath("apt-get"); err != nil {
		return fmt.Errorf("no apt-get in PATH: install what provides Debian's packages %s", strings.Join(packages, " "))
	}
	command := append([]string{"apt-get", "install", "--yes", "--no-install-recommends"}, packages...)
	if !opts.Yes {
		_, err := fmt.Fprintln(opts.Streams.Out, strings.Join(command, " "))
		return err
	}
	if !opts.Probes.Root {
		return fmt.Errorf("not root: run sudo unnest doctor --fix --yes")
	}
	for _, command := range [][]string{{"apt-get", "-qq", "update"}, command} {
		fmt.Fprintln(opts.Streams.Err, strings.Join(command, " "))
		if err := opts.Run(command); err != nil {
			return fmt.Errorf("%s: %w", strings.Join(command, " "), err)
		}
	}
	return lacks(doctor.Unmet(doctor.Examine(ctx, opts.Probes)))
}

// install runs a command of apt, in a process group of its own: a signal to unnest does not leave a
// package half installed, which would be in the way of every later apt-get.
func install(streams terminal.Streams, command []string) error {
	cmd := exec.Command(command[0], append(command[1:], "-o", "DPkg::Lock::Timeout=300")...)
	cmd.Stdout, cmd.Stderr = streams.Err, streams.Err
	cmd.Env = append(os.Environ(), "DEBIAN_FRONTEND=noninteractive")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	return cmd.Run()
}
