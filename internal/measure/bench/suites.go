package bench

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"unnest/internal/measure/experiment"
	"unnest/internal/measure/stack"
	"unnest/internal/measure/suite"
	"unnest/internal/testbed/fleet"
	"unnest/internal/testbed/guest"
	"unnest/internal/testbed/lab"
	"unnest/internal/testbed/place"
)

// Suites is an experiment on cases of suites, brought up: every machine that its
// configurations stand on, at the same time, so that they can be measured in turn.
type Suites struct {
	spec    *experiment.Spec
	facts   Facts
	lab     *lab.Lab
	fleet   *fleet.Fleet
	builder guest.Builder
	recipe  guest.Recipe
	image   guest.Image // of the guests that cases run in
	outer   guest.Image // of the guests that other guests run in
	foreign map[stack.Arch]guest.Image
	archive *guest.Archive // of containers on hosts that are none of ours
	accel   guest.Accel
	nests   bool // a configuration is of level 2: level 1 has the same processor
	booted  int
	nodes   []*fleet.Node
	metal   *metal
	systems map[string]*system
	sites   map[string]*site // by configuration
}

// site is one configuration brought up: where its cases run.
type site struct {
	system *system
	place  place.Place
	dir    string           // that the cases work below
	holes  map[string]error // case -> why it cannot run here
}

// UpSuites brings spec up, all of whose cases are of suites. When a step fails, or
// ctx ends, everything is taken down again.
func UpSuites(ctx context.Context, spec *experiment.Spec, o Options) (_ *Suites, err error) {
	if err := supportedSuites(spec); err != nil {
		return nil, err
	}
	b := &Suites{
		spec: spec, accel: o.Accel, facts: Facts{Tools: map[string]string{}},
		foreign: map[stack.Arch]guest.Image{}, systems: map[string]*system{}, sites: map[string]*site{},
	}
	for _, c := range spec.Configurations {
		b.nests = b.nests || c.Level() > 1
	}
	if err := reapWork(guest.CacheDir()); err != nil {
		return nil, err
	}
	phase := phases(o.Progress, 1+2*len(spec.Configurations))
	phase("make the guest image")
	if b.lab, err = lab.Create(o.Lab); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, b.Down())
		}
	}()
	if b.fleet, err = fleet.Open(b.lab); err != nil {
		return nil, err
	}
	b.builder = imageBuilder(o.Programs, o.Progress.Phase)
	if err := b.addFiles(ctx); err != nil {
		return nil, err
	}
	b.recipe = guest.SuiteRecipe(packages(spec))
	if err := b.build(ctx); err != nil {
		return nil, err
	}
	for _, c := range spec.Configurations {
		phase("start " + c.Name)
		if err := b.startSite(ctx, c); err != nil {
			return nil, fmt.Errorf("configuration %s: %w", c.Name, err)
		}
	}
	if err := b.findVersions(ctx); err != nil {
		return nil, err
	}
	for _, c := range spec.Configurations {
		phase("prepare the cases in " + c.Name)
		if err := b.prepare(ctx, c); err != nil {
			return nil, fmt.Errorf("configuration %s: %w", c.Name, err)
		}
	}
	return b, nil
}

// supportedSuites returns an error unless every configuration can be brought up.
func supportedSuites(spec *experiment.Spec) error {
	for _, c := range spec.Configurations {
		_, contained := c.Stack.Engine()
		switch {
		case c.Architecture() != stack.X8664 && (contained || c.Level() != 1):
			return fmt.Errorf("configuration %s: guests of %s run no containers and no guests: use stack vm", c.Name, c.Architecture())
		case c.Network != "" && c.Network != stack.HostNetwork:
			return fmt.Errorf("configuration %s: network %s: cases of suites do not leave their machine: leave it out", c.Name, c.Network)
		}
	}
	return nil
}

// build makes the images that the configurations need.
func (b *Suites) build(ctx context.Context) (err error) {
	for _, c := range b.spec.Configurations {
		_, contained := c.Stack.Engine()
		switch {
		case c.Stack.Remote() && contained && b.archive == nil:
			builder := b.tools()
			b.archive, err = builder.Archive(ctx, b.recipe)
		case c.Stack.Remote():
		case c.Architecture() != stack.X8664:
			err = b.buildForeign(ctx, c.Architecture())
		case c.Level() == 0:
			_, err = b.builder.Root(ctx, b.recipe)
		default:
			b.image, err = b.builder.Build(ctx, b.recipe)
			b.facts.Image = b.image.Digest
		}
		if err == nil && c.Level() > 1 {
			b.outer, err = b.builder.Build(ctx, guest.HypervisorRecipe())
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// buildForeign makes the image of another architecture, whose guests have the tools
// and no container engine of ours.
func (b *Suites) buildForeign(ctx context.Context, a stack.Arch) error {
	if b.foreign[a] != (guest.Image{}) {
		return nil
	}
	arch, err := guest.ParseArch(string(a))
	if err != nil {
		return err
	}
	recipe, err := guest.ArchRecipe(arch)
	if err != nil {
		return err
	}
	builder := b.tools()
	b.foreign[a], err = builder.Build(ctx, recipe.With(packages(b.spec)...))
	return err
}

// tools is the builder without programs of ours: with what the cases need alone.
func (b *Suites) tools() guest.Builder {
	builder := guest.Builder{Cache: b.builder.Cache, Progress: b.builder.Progress, Programs: map[string]string{}}
	for target, path := range b.builder.Programs {
		if strings.HasSuffix(target, ".jar") {
			builder.Programs[target] = path
		}
	}
	return builder
}

// packages are the Debian packages of the cases' tools.
func packages(spec *experiment.Spec) (all []string) {
	for _, c := range spec.Cases {
		all = append(all, strings.Fields(c.Local.Package)...)
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// addFiles fetches what no Debian package has.
func (b *Suites) addFiles(ctx context.Context) error {
	for _, c := range b.spec.Cases {
		for _, f := range c.Local.Files {
			path, err := fetch(ctx, f, b.builder.Cache)
			if err != nil {
				return fmt.Errorf("case %s: %w", c.Name, err)
			}
			b.builder.Programs[f.Path] = path
		}
	}
	return nil
}

// mavenCentral is where files with Maven's coordinates are.
const mavenCentral = "https://repo1.maven.org/maven2/"

// fetch returns the path of the file in the cache, downloaded when it is not there.
func fetch(ctx context.Context, f suite.File, cache string) (string, error) {
	target := filepath.Join(cache, "file-"+f.SHA256)
	if _, err := os.Stat(target); err == nil {
		return target, nil
	}
	parts := strings.Split(f.Maven, ":")
	if len(parts) != 3 {
		return "", fmt.Errorf("file %q: want Maven coordinates GROUP:ARTIFACT:VERSION", f.Maven)
	}
	group, artifact, version := parts[0], parts[1], parts[2]
	url := mavenCentral + path.Join(strings.ReplaceAll(group, ".", "/"), artifact, version, artifact+"-"+version+".jar")
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return "", err
	}
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return "", fmt.Errorf("fetch %s: %w", f.Maven, err)
	}
	defer answer.Body.Close()
	content, err := io.ReadAll(io.LimitReader(answer.Body, 64<<20))
	if err != nil || answer.StatusCode != http.StatusOK {
		return "", fmt.Errorf("fetch %s: %s: %w", url, answer.Status, err)
	}
	if sum := sha256.Sum256(content); hex.EncodeToString(sum[:]) != f.SHA256 {
		return "", fmt.Errorf("fetch %s: it has SHA-256 %x, want %s", url, sum, f.SHA256)
	}
	return target, place.Local{}.Put(ctx, target, 0o644, bytes.NewReader(content))
}

// startSite brings up what a configuration runs in. Containers are entered by their
// engine, although that takes an emulated guest a second or two of CPU time: nsenter
// gives a command the container's namespaces and control group, but all capabilities
// and no seccomp filter, where the engine's has Docker's default ones and, where the
// host has any, a security profile. Every system call passes through the filter: that
// is part of what a program takes in a container, and so of what is measured here.
// The time to enter is not: a script is timed from inside, by its tool or its shell,
// and the engine, once it has started one, does nothing until it ends.
func (b *Suites) startSite(ctx context.Context, c stack.Configuration) error {
	sys, err := b.system(ctx, c)
	if err != nil {
		return err
	}
	ctx, done := whileAlive(ctx, sys)
	defer done()
	s := &site{system: sys, place: sys.place, dir: path.Join(sys.work, containerName(c)), holes: map[string]error{}}
	b.sites[c.Name] = s
	if _, contained := c.Stack.Engine(); contained {
		if err := sys.start(ctx); err != nil {
			return err
		}
		network := []string{"--network", "none"}
		if c.Network == stack.HostNetwork {
			network = networkArgs(c.Network, nil)
		}
		if s.place, err = sys.contain(ctx, c, s.dir, network); err != nil {
			return err
		}
		s.place = place.Within{Place: s.place, Env: []string{"LC_ALL=C", "HOME=/tmp"}, Name: s.place.String()}
	}
	return sys.explain(place.Run(ctx, s.place, "mkdir", "-p", s.dir))
}

// findVersions notes the versions of the tools' packages, which are the same in
// every machine and container of ours.
func (b *Suites) findVersions(ctx context.Context) error {
	for _, c := range b.spec.Configurations {
		_, contained := c.Stack.Engine()
		if c.Stack.Remote() && !contained || len(packages(b.spec)) == 0 {
			continue
		}
		args := append([]string{"dpkg-query", "--show", "--showformat", "${Package} ${Version}\n"}, packages(b.spec)...)
		out, err := place.Output(ctx, b.sites[c.Name].place, args...)
		if err != nil {
			return b.sites[c.Name].system.explain(err)
		}
		for line := range strings.Lines(string(out)) {
			if name, version, ok := strings.Cut(strings.TrimSpace(line), " "); ok {
				b.facts.Tools[name] = version
			}
		}
		return nil
	}
	return nil
}

// prepare makes what the cases need in a configuration. A case for which that fails
// is a hole.
func (b *Suites) prepare(ctx context.Context, c stack.Configuration) error {
	s := b.sites[c.Name]
	ctx, done := whileAlive(ctx, s.system)
	defer done()
	for _, k := range b.spec.Cases {
		err := s.prepare(ctx, k, b.spec, c)
		if ctx.Err() != nil {
			return s.system.explain(context.Cause(ctx))
		}
		if err = s.system.explain(err); errors.Is(err, experiment.ErrFatal) {
			return err
		}
		if err != nil {
			s.holes[k.Name] = fmt.Errorf("%w: %w", experiment.ErrUnsupported, err)
		}
	}
	return nil
}

// prepareLimit is how many times longer than an execution the preparation of a case
// may take.
const prepareLimit = 5

func (s *site) prepare(ctx context.Context, k experiment.Case, spec *experiment.Spec, c stack.Configuration) error {
	limit := prepareLimit * k.Timeout
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("it cannot be prepared within %s", limit))
	defer cancel()
	if err := s.findTools(ctx, k); err != nil {
		return err
	}
	if k.Local.Prepare == nil {
		return place.Run(ctx, s.place, "mkdir", "-p", s.caseDir(k))
	}
	r, err := spec.Resources(c)
	if err != nil {
		return err
	}
	_, err = s.run(ctx, k, k.Local.Prepare(k.Profile, r))
	return err
}

// findTools returns an error that names the first tool of a case that is not there.
func (s *site) findTools(ctx context.Context, k experiment.Case) error {
	const script = `for tool; do command -v "$tool" >/dev/null || { echo "$tool"; break; }; done`
	out, err := place.Output(ctx, s.place, append([]string{"sh", "-c", script, "tools"}, k.Local.Tools...)...)
	if tool := strings.TrimSpace(string(out)); err == nil && tool != "" {
		return fmt.Errorf("there is no %s on %s: the Debian package is %s", tool, s.place, k.Local.Package)
	}
	return err
}

func (s *site) caseDir(k experiment.Case) string { return path.Join(s.dir, k.Name) }

// run runs a script of a case in its directory and returns what it prints. A bash
// that sshd has started reads the host's and the user's bashrc first, also for -c,
// unless told not to; what is wrong there hides what the tool says.
func (s *site) run(ctx context.Context, k experiment.Case, script string) ([]byte, error) {
	const enter = `mkdir -p "$1"; cd "$1"; exec bash --norc -e -u -o pipefail -c "$2"`
	return place.Output(ctx, s.place, "sh", "-c", enter, "case", s.caseDir(k), script)
}

// said adds to the error of a script that has said nothing about it the last lines
// of its output: of many tools that is where their errors are.
func said(err error, out []byte) error {
	var exit *place.ExitError
	text := strings.TrimSpace(string(out))
	if text == "" || !errors.As(err, &exit) || exit.Stderr != "" {
		return err
	}
	lines := strings.Split(text, "\n")
	return fmt.Errorf("%w: %s", err, strings.Join(lines[max(0, len(lines)-3):], " | "))
}

// Execute runs a case once in a configuration, see experiment.Bench. What earlier
// cases have written is on the disk by then.
func (b *Suites) Execute(ctx context.Context, e experiment.Execution) (experiment.Outcome, error) {
	s := b.sites[e.Configuration.Name]
	if hole := s.holes[e.Case.Name]; hole != nil {
		return experiment.Outcome{}, hole
	}
	r, err := b.spec.Resources(e.Configuration)
	if err != nil {
		return experiment.Outcome{}, err
	}
	ctx, done := whileAlive(ctx, s.system)
	defer done()
	if err := place.Run(ctx, s.system.place, "sync"); err != nil {
		return experiment.Outcome{}, s.system.explain(err)
	}
	out, err := s.run(ctx, e.Case, e.Case.Local.Run(e.Case.Profile, r))
	if err != nil {
		return experiment.Outcome{}, s.system.explain(said(err, out))
	}
	values, err := e.Case.Local.Parse(out)
	return experiment.Outcome{Values: values, Boot: s.system.boot}, err
}

// Facts says where and with what the experiment runs.
func (b *Suites) Facts() Facts { return b.facts }

// Down takes everything down.
func (b *Suites) Down() error { return takeDown(b.systems, b.nodes, b.metal, b.lab) }
