package doctor

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"unnest.io/unnest/internal/cli/terminal"
	"unnest.io/unnest/internal/testbed/doctor"
)

func TestFix(t *testing.T) {
	const (
		install = "apt-get install --yes --no-install-recommends "
		line    = install + "kmod qemu-system-x86"
		update  = "apt-get -qq update"
		absent  = "this machine lacks what the quick start requires: "
	)
	for _, tt := range []struct {
		name      string
		missing   []string // in PATH
		spoil     func(*doctor.Probes)
		yes       bool
		installs  bool // the command does what it should
		fails     string
		interrupt string // the command in which the user interrupts
		out, runs string
		err       string
	}{
		{name: "nothing missing"},
		{name: "nothing missing, yes", yes: true},
		{name: "printed", missing: []string{"qemu-system-x86_64", "modprobe"}, out: line + "\n"},
		{name: "printed for an ordinary user", missing: []string{"qemu-system-x86_64", "modprobe"}, spoil: func(p *doctor.Probes) { p.Root = false }, out: line + "\n"},
		{name: "run", missing: []string{"qemu-system-x86_64", "modprobe"}, yes: true, installs: true, runs: update + "; " + line},
		{name: "run in vain", missing: []string{"qemu-system-x86_64", "modprobe"}, yes: true, runs: update + "; " + line, err: absent + "qemu, modprobe"},
		{name: "a source is broken", missing: []string{"modprobe"}, yes: true, installs: true, fails: update, runs: update + "; " + install + "kmod"},
		{name: "no mirror", missing: []string{"modprobe"}, yes: true, fails: install + "kmod", runs: update + "; " + install + "kmod", err: install + "kmod: exit status 100"},
		{name: "interrupted", missing: []string{"modprobe"}, yes: true, interrupt: update, runs: update, err: update + ": interrupted"},
		{name: "interrupted in an update that fails", missing: []string{"modprobe"}, yes: true, interrupt: update, fails: update, runs: update, err: update + ": interrupted"},
		{name: "interrupted while it installs", missing: []string{"modprobe"}, yes: true, interrupt: install + "kmod", runs: update + "; " + install + "kmod", err: install + "kmod: interrupted"},
		{name: "ordinary user", missing: []string{"modprobe"}, spoil: func(p *doctor.Probes) { p.Root = false }, yes: true, err: "not root: run sudo unnest doctor --fix --yes"},
		{name: "another system", missing: []string{"modprobe", "apt-get"}, err: "no apt-get in PATH: install what provides Debian's packages kmod"},
		{name: "no package helps", spoil: func(p *doctor.Probes) { p.OpenDevice = func(string) error { return errors.New("none") } }, err: absent + "tun"},
		{name: "docker is optional", missing: []string{"docker"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p, missing := rich(), tt.missing
			p.LookPath = func(program string) (string, error) {
				if slices.Contains(missing, program) {
					return "", errors.New("not found")
				}
				return "/usr/bin/" + program, nil
			}
			if tt.spoil != nil {
				tt.spoil(&p)
			}
			var out, errs bytes.Buffer
			var runs []string
			ctx, interrupt := context.WithCancelCause(t.Context())
			defer interrupt(nil)
			err := Run(ctx, Options{Streams: terminal.Streams{Out: &out, Err: &errs}, Probes: p, Fix: true, Yes: tt.yes, Run: func(command []string) error {
				runs = append(runs, strings.Join(command, " "))
				if tt.installs {
					missing = nil
				}
				line := strings.Join(command, " ")
				if line == tt.interrupt {
					interrupt(errors.New("interrupted"))
				}
				if line == tt.fails {
					return errors.New("exit status 100")
				}
				return nil
			}})
			if got := text(err); got != tt.err {
				t.Errorf("error %q, want %q", got, tt.err)
			}
			if got := strings.Join(runs, "; "); got != tt.runs || out.String() != tt.out {
				t.Errorf("ran %q and printed %q, want %q and %q", got, out.String(), tt.runs, tt.out)
			}
			if want := tt.fails == update && tt.interrupt == ""; strings.Contains(errs.String(), "warning: "+update+": exit status 100: going on") != want {
				t.Errorf("said %q, want a warning: %v", errs.String(), want)
			}
		})
	}
}

// What apt prints and how it ends reaches the user.
func TestInstall(t *testing.T) {
	var errs bytes.Buffer
	if err := install(terminal.Streams{Err: &errs}, []string{"sh", "-c", `echo "$DEBIAN_FRONTEND $2"; exit 3`, "apt"}); err == nil || err.Error() != "exit status 3" {
		t.Errorf("got %v", err)
	}
	if want := "noninteractive DPkg::Lock::Timeout=300\n"; errs.String() != want {
		t.Errorf("printed %q, want %q", errs.String(), want)
	}
	errs.Reset()
	quiet := terminal.Streams{Err: &terminal.Gate{Writer: &errs, Shut: true}}
	if err := install(quiet, []string{"sh", "-c", "echo progress; echo 'E: no space' >&2; exit 100", "apt"}); err == nil || errs.String() != "E: no space\n" {
		t.Errorf("quiet: got %v, printed %q", err, errs.String())
	}
}
