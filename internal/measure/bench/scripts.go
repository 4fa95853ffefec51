package bench

import (
	"context"
	"errors"
	"fmt"
	"path"
	"strings"

	"unnest/internal/measure/experiment"
	"unnest/internal/measure/stack"
	"unnest/internal/measure/suite"
	"unnest/internal/measure/workload"
	"unnest/internal/testbed/place"
)

// scripts is the study of the cases of suites: scripts that run in the machines and
// containers themselves.
type scripts struct {
	*Bench
	workspaces map[string]*workspace      // by configuration
	published  map[string][]workload.Port // of a container, by configuration; nil: none
}

// workspace is where the cases of one configuration run.
type workspace struct {
	machine     *machine
	place       place.Place
	dir         string           // parent of the directories of the cases
	unsupported map[string]error // case -> why it cannot run here
}

func (s *scripts) check(c stack.Configuration) error {
	_, contained := c.Stack.Engine()
	switch {
	case c.Architecture() != stack.X8664 && (contained || c.Level() != 1):
		return fmt.Errorf("arch %s: its guests run no containers and no guests: use stack vm", c.Architecture())
	case c.Network != "" && c.Network != stack.HostNetwork:
		return fmt.Errorf("network %s: cases of suites do not leave their machine: leave it out", c.Network)
	case c.Level() > 2:
		return fmt.Errorf("stack %s: guests can nest two levels deep, not %d", c.Stack, c.Level())
	}
	return nil
}

func (s *scripts) needs() needs { return needs{machines: true} }

func (s *scripts) begin(context.Context) error { return nil }

func (s *scripts) start(ctx context.Context, c stack.Configuration) error {
	if err := s.openWorkspace(ctx, c); err != nil {
		return err
	}
	return s.prepare(ctx, c)
}

// openWorkspace starts the container of a configuration, if it has one. Containers are
// entered by their engine, although that costs an emulated guest a second or two of CPU
// time: nsenter would give a command the container's namespaces and control group, but
// all capabilities and no seccomp filter, while the engine gives it Docker's default
// ones and, where the host has one, a security profile. Every system call passes the
// filter, so the filter is part of what a container costs, and of what is measured. The
// time to enter is not: the tool or the shell times the script from inside, and the
// engine does nothing between the start and the end of the script.
func (s *scripts) openWorkspace(ctx context.Context, c stack.Configuration) error {
	m := s.machines(c).servers()
	ctx, done := whileAlive(ctx, m)
	defer done()
	w := &workspace{machine: m, place: m.place, dir: path.Join(m.work, containerName(c)), unsupported: map[string]error{}}
	s.workspaces[c.Name] = w
	if _, contained := c.Stack.Engine(); contained {
		if err := m.start(ctx); err != nil {
			return err
		}
		network := []string{"--network", "none"}
		if c.Network != "" {
			network = networkArgs(c.Network, s.published[c.Name])
		}
		inside, err := m.contain(ctx, c, w.dir, network)
		if err != nil {
			return err
		}
		w.place = place.Within{Place: inside, Env: []string{"LC_ALL=C", "HOME=/tmp"}, Name: inside.String()}
	}
	if err := place.Run(ctx, w.place, "mkdir", "-p", w.dir); err != nil {
		return m.explain(err)
	}
	if _, contained := c.Stack.Engine(); len(s.facts.Tools) > 0 || c.Stack.Remote() && !contained {
		return nil
	}
	return m.explain(s.findPackages(ctx, w.place))
}

// findPackages records the versions of the tools' packages, which are the same in all
// our machines and containers.
func (b *Bench) findPackages(ctx context.Context, p place.Place) error {
	names := packages(b.spec)
	if len(names) == 0 {
		return nil
	}
	out, err := place.Output(ctx, p, append([]string{"dpkg-query", "--show", "--showformat", "${Package} ${Version}\n"}, names...)...)
	for line := range strings.Lines(string(out)) {
		if name, version, ok := strings.Cut(strings.TrimSpace(line), " "); ok {
			b.facts.Tools[name] = version
		}
	}
	return err
}

// prepare prepares the cases in a configuration. A case that cannot be prepared is
// unsupported there.
func (s *scripts) prepare(ctx context.Context, c stack.Configuration) error {
	size, err := s.spec.Resources(c)
	if err != nil {
		return err
	}
	return s.workspaces[c.Name].prepareAll(ctx, s.spec.Cases, size)
}

func (w *workspace) prepareAll(ctx context.Context, cases []experiment.Case, size suite.Resources) error {
	ctx, done := whileAlive(ctx, w.machine)
	defer done()
	for _, k := range cases {
		err := w.prepare(ctx, k, size)
		if ctx.Err() != nil {
			return w.machine.explain(context.Cause(ctx))
		}
		if err = w.machine.explain(err); errors.Is(err, experiment.ErrFatal) {
			return err
		}
		if err != nil {
			w.unsupported[k.Name] = fmt.Errorf("%w: %w", experiment.ErrUnsupported, err)
		}
	}
	return nil
}

// prepareLimit is the time limit of the preparation of a case, in time limits of an
// execution.
const prepareLimit = 5

func (w *workspace) prepare(ctx context.Context, k experiment.Case, size suite.Resources) error {
	limit := prepareLimit * k.Timeout
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("its preparation takes longer than %s", limit))
	defer cancel()
	if err := w.findTools(ctx, k); err != nil {
		return err
	}
	if k.Local.Prepare == nil {
		return place.Run(ctx, w.place, "mkdir", "-p", w.caseDir(k))
	}
	_, err := w.run(ctx, k, k.Local.Prepare(k.Profile, size))
	return err
}

// findTools returns an error that names the first missing tool of a case.
func (w *workspace) findTools(ctx context.Context, k experiment.Case) error {
	const script = `for tool; do command -v "$tool" >/dev/null || { echo "$tool"; break; }; done`
	out, err := place.Output(ctx, w.place, append([]string{"sh", "-c", script, "tools"}, k.Local.Tools...)...)
	if tool := strings.TrimSpace(string(out)); err == nil && tool != "" {
		return fmt.Errorf("there is no %s on %s: the Debian package is %s", tool, w.place, k.Local.Package)
	}
	return err
}

func (w *workspace) caseDir(k experiment.Case) string { return path.Join(w.dir, k.Name) }

// enterScript enters the directory of a case and replaces itself with a script. Without
// --norc, a bash that sshd has started reads bashrc files first, even with -c, and
// their output would hide that of the tool.
const enterScript = `mkdir -p "$1"; cd "$1"; exec bash --norc -e -u -o pipefail -c "$2"`

// command is the command of a script of a case, in the case's directory.
func (w *workspace) command(k experiment.Case, script string) []string {
	return []string{"sh", "-c", enterScript, "case", w.caseDir(k), script}
}

// run runs a script of a case and returns its output.
func (w *workspace) run(ctx context.Context, k experiment.Case, script string) ([]byte, error) {
	return place.Output(ctx, w.place, w.command(k, script)...)
}

// withOutput adds the last lines of its output to the error of a script that printed
// nothing to standard error: many tools print their errors to standard output.
func withOutput(err error, out []byte) error {
	var exit *place.ExitError
	text := strings.TrimSpace(string(out))
	if text == "" || !errors.As(err, &exit) || exit.Stderr != "" {
		return err
	}
	lines := strings.Split(text, "\n")
	return fmt.Errorf("%w: %s", err, strings.Join(lines[max(0, len(lines)-3):], " | "))
}

// Execute runs a case once in a configuration, see experiment.Bench. It first waits
// until the data of earlier cases are on the disk.
func (s *scripts) Execute(ctx context.Context, e experiment.Execution) (experiment.Outcome, error) {
	w := s.workspaces[e.Configuration.Name]
	if err := w.unsupported[e.Case.Name]; err != nil {
		return experiment.Outcome{}, err
	}
	size, err := s.spec.Resources(e.Configuration)
	if err != nil {
		return experiment.Outcome{}, err
	}
	ctx, done := whileAlive(ctx, w.machine)
	defer done()
	if err := place.Run(ctx, w.machine.place, "sync"); err != nil {
		return experiment.Outcome{}, w.machine.explain(err)
	}
	out, err := w.run(ctx, e.Case, e.Case.Local.Run(e.Case.Profile, size))
	if err != nil {
		return experiment.Outcome{}, w.machine.explain(withOutput(err, out))
	}
	values, err := e.Case.Local.Parse(out)
	return experiment.Outcome{Values: values, Boot: w.machine.boot}, err
}
