// Package scripts is the study of the cases of suites: scripts that run in the machines and containers
// themselves, at each level of virtualization.
package scripts

import (
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"

	"unnest.io/unnest/internal/measure/experiment"
	"unnest.io/unnest/internal/measure/machines"
	"unnest.io/unnest/internal/measure/machines/machine"
	"unnest.io/unnest/internal/measure/stack"
	"unnest.io/unnest/internal/measure/suite"
	"unnest.io/unnest/internal/measure/workload"
	"unnest.io/unnest/internal/testbed/place"
)

// Study is the study of the cases of suites: scripts that run in the machines and
// containers themselves.
type Study struct {
	*machines.Set
	Workspaces map[string]*Workspace      // by configuration
	Published  map[string][]workload.Port // of a container, by configuration; nil: none
}

// New returns the study on machines of which none is up.
func New(b *machines.Set) *Study {
	return &Study{Set: b, Workspaces: map[string]*Workspace{}, Published: map[string][]workload.Port{}}
}

// Workspace is where the cases of one configuration run.
type Workspace struct {
	Machine     *machine.Machine
	Place       place.Place
	container   *place.Container // nil: it is none
	Dir         string           // parent of the directories of the cases
	Unsupported map[string]error // case -> why it cannot run here
}

// Check returns an error unless the study can measure the configuration.
func (s *Study) Check(c stack.Configuration) error {
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

// Needs says what has to be up before Begin.
func (s *Study) Needs() machines.Needs { return machines.Needs{Machines: true} }

// Begin prepares the study, when the machines are up.
func (s *Study) Begin(context.Context) error { return nil }

// Start starts what is measured in a configuration.
func (s *Study) Start(ctx context.Context, c stack.Configuration) error {
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
func (s *Study) openWorkspace(ctx context.Context, c stack.Configuration) error {
	m := s.Of(c).Servers()
	ctx, done := machine.WhileAlive(ctx, m)
	defer done()
	w := &Workspace{Machine: m, Place: m.Place, Dir: path.Join(m.Work, machine.ContainerName(c)), Unsupported: map[string]error{}}
	s.Workspaces[c.Name] = w
	if _, contained := c.Stack.Engine(); contained {
		if err := m.Start(ctx); err != nil {
			return err
		}
		network := []string{"--network", "none"}
		if c.Network != "" {
			network = machine.NetworkArgs(c.Network, s.Published[c.Name])
		}
		inside, err := m.Contain(ctx, c, w.Dir, network)
		if err != nil {
			return err
		}
		w.container = machine.ContainerOf(inside)
		w.Place = place.Within{Place: inside, Env: []string{"LC_ALL=C", "HOME=/tmp"}, Name: inside.String()}
	}
	if err := place.Run(ctx, w.Place, "mkdir", "-p", w.Dir); err != nil {
		return m.Explain(w.died(ctx, err))
	}
	if !s.asks(c) {
		return nil
	}
	return m.Explain(s.FindPackages(ctx, w.Place))
}

// asks reports whether the study records the versions of packages in a configuration: in one of those that share
// packages, and on a user's host in containers only, whose packages are ours.
func (s *Study) asks(c stack.Configuration) bool {
	_, contained := c.Stack.Engine()
	return c.Stack.Remote() && contained || slices.ContainsFunc(s.OfEachRelease(), func(one stack.Configuration) bool { return one.Name == c.Name })
}

// died adds to err that the container has ended, if it has.
func (w *Workspace) died(ctx context.Context, err error) error {
	if w.container == nil {
		return err
	}
	return machine.WithContainerEnd(ctx, *w.container, err)
}

// prepare prepares the cases in a configuration. A case that cannot be prepared is
// unsupported there.
func (s *Study) prepare(ctx context.Context, c stack.Configuration) error {
	size, err := s.Spec.Resources(c)
	if err != nil {
		return err
	}
	return s.Workspaces[c.Name].PrepareAll(ctx, s.Spec.Cases, size)
}

// PrepareAll prepares the cases. One that cannot be prepared is unsupported in the workspace.
func (w *Workspace) PrepareAll(ctx context.Context, cases []experiment.Case, size suite.Resources) error {
	ctx, done := machine.WhileAlive(ctx, w.Machine)
	defer done()
	for _, k := range cases {
		err := w.prepare(ctx, k, size)
		if ctx.Err() != nil {
			return w.Machine.Explain(context.Cause(ctx))
		}
		if err = w.Machine.Explain(err); errors.Is(err, experiment.ErrFatal) {
			return err
		}
		if err != nil {
			w.Unsupported[k.Name] = fmt.Errorf("%w: %w", experiment.ErrUnsupported, err)
		}
	}
	return nil
}

// prepareLimit is the time limit of the preparation of a case, in time limits of an
// execution.
const prepareLimit = 5

func (w *Workspace) prepare(ctx context.Context, k experiment.Case, size suite.Resources) error {
	limit := prepareLimit * k.Timeout
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("its preparation takes longer than %s", limit))
	defer cancel()
	if err := w.findTools(ctx, k); err != nil {
		return err
	}
	if k.Local.Prepare == nil {
		return place.Run(ctx, w.Place, "mkdir", "-p", w.caseDir(k))
	}
	_, err := w.Run(ctx, k, k.Local.Prepare(k.Profile, size))
	return err
}

// findTools returns an error that names the first missing tool of a case.
func (w *Workspace) findTools(ctx context.Context, k experiment.Case) error {
	const script = `for tool; do command -v "$tool" >/dev/null || { echo "$tool"; break; }; done`
	out, err := place.Output(ctx, w.Place, append([]string{"sh", "-c", script, "tools"}, k.Local.Tools...)...)
	if tool := strings.TrimSpace(string(out)); err == nil && tool != "" {
		return fmt.Errorf("there is no %s on %s: the Debian package is %s", tool, w.Place, k.Local.Package)
	}
	return err
}

func (w *Workspace) caseDir(k experiment.Case) string { return path.Join(w.Dir, k.Name) }

// enterScript enters the directory of a case and replaces itself with a script. Without
// --norc, a bash that sshd has started reads bashrc files first, even with -c, and
// their output would hide that of the tool.
const enterScript = `mkdir -p "$1"; cd "$1"; exec bash --norc -e -u -o pipefail -c "$2"`

// Command is the command of a script of a case, in the case's directory.
func (w *Workspace) Command(k experiment.Case, script string) []string {
	return []string{"sh", "-c", enterScript, "case", w.caseDir(k), script}
}

// Run runs a script of a case and returns its output.
func (w *Workspace) Run(ctx context.Context, k experiment.Case, script string) ([]byte, error) {
	return place.Output(ctx, w.Place, w.Command(k, script)...)
}

// WithOutput adds the last lines of its output to the error of a script that printed
// nothing to standard error: many tools print their errors to standard output.
func WithOutput(err error, out []byte) error {
	var exit *place.ExitError
	text := strings.TrimSpace(string(out))
	if text == "" || !errors.As(err, &exit) || exit.Stderr != "" {
		return err
	}
	lines := strings.Split(text, "\n")
	return fmt.Errorf("%w: %s", err, strings.Join(lines[max(0, len(lines)-3):], " | "))
}

// Restart boots the machines again that are gone, with everything that the configurations have in them, see
// experiment.Restarter. It does not start configurations that have not been started yet.
func (s *Study) Restart(ctx context.Context) error {
	return s.RestartDead(ctx, s.Needs(), func(ctx context.Context, c stack.Configuration) error {
		if s.Workspaces[c.Name] == nil {
			return nil
		}
		return s.Start(ctx, c)
	})
}

// Execute runs a case once in a configuration, see experiment.Bench. It first waits
// until the data of earlier cases are on the disk.
func (s *Study) Execute(ctx context.Context, e experiment.Execution) (experiment.Outcome, error) {
	w := s.Workspaces[e.Configuration.Name]
	if err := w.Unsupported[e.Case.Name]; err != nil {
		return experiment.Outcome{}, err
	}
	size, err := s.Spec.Resources(e.Configuration)
	if err != nil {
		return experiment.Outcome{}, err
	}
	ctx, done := machine.WhileAlive(ctx, w.Machine)
	defer done()
	if err := place.Run(ctx, w.Machine.Place, "sync"); err != nil {
		return experiment.Outcome{}, w.Machine.Explain(err)
	}
	out, err := w.Run(ctx, e.Case, e.Case.Local.Run(e.Case.Profile, size))
	if err != nil {
		return experiment.Outcome{}, w.Machine.Explain(WithOutput(err, out))
	}
	values, err := e.Case.Local.Parse(out)
	return experiment.Outcome{Values: values, Boot: w.Machine.Boot}, err
}
