package experiment

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/goccy/go-yaml/ast"

	"unnest.io/unnest/internal/measure/stack"
	"unnest.io/unnest/internal/measure/stats"
	"unnest.io/unnest/internal/measure/suite"
	"unnest.io/unnest/internal/measure/workload"
	"unnest.io/unnest/internal/yamldoc"
)

// suites returns the cases of the suite called name, see suite.Of.
type suites func(name string) ([]suite.Case, error)

// file is an experiment file as written, before its groups become cases.
type file struct {
	*yamldoc.Document
	suites  suites
	spec    Spec
	profile suite.Profile // overrides that of the file unless empty
	timeout time.Duration
	groups  []group
	leftOut []string // names of configurations
}

// group is one entry of cases: a workload, a probe, or cases of a suite.
type group struct {
	path     string
	name     string
	title    string
	workload string
	params   workload.Params // without the size
	sizes    []int
	percents []int         // intensities; nil: none
	timeout  time.Duration // 0: that of the file
	blocks   int           // 0: all
	probe    Probe
	suite    string
	only     []string // cases of the suite; nil: all
	except   []string
	pair     Pair
}

// Parse reads an experiment file; name identifies it in errors. Each error gives file,
// line and key. The defaults are: title the name, baselines the first configuration,
// guest 1 vCPU and 1GiB, overcommit full, profile quick, repetitions 6, warmup 1,
// retries 2, timeout 60s, or for a case of a suite six times its expected duration if
// that is more. A configuration without stack is the one that the papers call by its
// name (see stack.Named).
func Parse(name string, data []byte) (*Spec, error) { return ParseProfile(name, data, "") }

// ParseProfile is Parse with a profile that overrides that of the file unless it is
// empty. It fails when no case is of a suite.
func ParseProfile(name string, data []byte, p suite.Profile) (*Spec, error) {
	return parse(name, data, p, suite.Of)
}

func parse(name string, data []byte, profile suite.Profile, suites suites) (*Spec, error) {
	doc, root, err := yamldoc.Parse(name, data, maxFile)
	if err != nil {
		return nil, err
	}
	f := &file{
		Document: doc,
		suites:   suites,
		profile:  profile,
		timeout:  defaultTimeout,
		spec: Spec{
			Text: string(data), Profile: suite.Quick, Overcommit: Full,
			Guest: Guest{VCPUs: 1, Memory: 1 << 30}, Repetitions: stats.MinRepetitions, Warmup: 1, Retries: 2,
		},
	}
	f.decode(root)
	f.check()
	if err := f.Err(); err != nil {
		return nil, err
	}
	return &f.spec, nil
}

// defaultTimeout is the default limit of an execution.
const defaultTimeout = time.Minute

// decode fills the file from YAML.
func (f *file) decode(root ast.Node) {
	s := &f.spec
	f.Mapping("", root, map[string]yamldoc.Key{
		"name":           yamldoc.Scalar(f.Document, &s.Name, yamldoc.Name),
		"title":          yamldoc.Scalar(f.Document, &s.Title, yamldoc.Text),
		"description":    yamldoc.Scalar(f.Document, &s.Description, parseAny),
		"suite":          yamldoc.Scalar(f.Document, &s.Suite, yamldoc.Name),
		"baselines":      f.NotEmpty(yamldoc.Scalars(f.Document, &s.Baselines, yamldoc.Text)),
		"profile":        yamldoc.Scalar(f.Document, &s.Profile, oneOf(suite.Quick, suite.Paper)),
		"guest":          f.guest,
		"engine":         yamldoc.Scalar(f.Document, &s.Engine, stack.ParseEngine),
		"overcommit":     yamldoc.Scalar(f.Document, &s.Overcommit, oneOf(Full, Reserved)),
		"configurations": f.NotEmpty(f.List(f.configuration)),
		"pairs":          f.NotEmpty(yamldoc.Scalars(f.Document, &s.Pairs, ParsePair)),
		"leave_out":      f.NotEmpty(yamldoc.Scalars(f.Document, &f.leftOut, yamldoc.Text)),
		"cases":          f.NotEmpty(f.List(f.group)),
		"repetitions":    yamldoc.Scalar(f.Document, &s.Repetitions, yamldoc.Count(1, maxRepetitions)),
		"until":          yamldoc.Scalar(f.Document, &s.Until, parsePercent),
		"limit":          yamldoc.Scalar(f.Document, &s.Limit, yamldoc.Count(1, maxRepetitions)),
		"fresh":          yamldoc.Scalar(f.Document, &s.Fresh, yamldoc.Bool),
		"warmup":         yamldoc.Scalar(f.Document, &s.Warmup, yamldoc.Count(0, 100)),
		"retries":        yamldoc.Scalar(f.Document, &s.Retries, yamldoc.Count(0, 100)),
		"timeout":        yamldoc.Scalar(f.Document, &f.timeout, yamldoc.Duration),
		"seed":           yamldoc.Scalar(f.Document, &s.Seed, parseSeed),
	})
}

func (f *file) guest(path string, n ast.Node) {
	f.Mapping(path, n, map[string]yamldoc.Key{
		"vcpus":   yamldoc.Scalar(f.Document, &f.spec.Guest.VCPUs, yamldoc.Count(1, stack.MaxVCPUs)),
		"memory":  yamldoc.Scalar(f.Document, &f.spec.Guest.Memory, yamldoc.MachineMemory),
		"release": yamldoc.Scalar(f.Document, &f.spec.Release, text[stack.Release]),
	})
}

func (f *file) configuration(path string, n ast.Node) {
	var c, own stack.Configuration
	var domains []stack.Domain
	neighbours := 0
	f.Mapping(path, n, map[string]yamldoc.Key{
		"name":       yamldoc.Scalar(f.Document, &c.Name, yamldoc.Name),
		"stack":      yamldoc.Scalar(f.Document, &c.Stack, stack.Parse),
		"network":    yamldoc.Scalar(f.Document, &own.Network, text[stack.Network]),
		"storage":    yamldoc.Scalar(f.Document, &own.Storage, text[stack.Storage]),
		"drive":      yamldoc.Scalar(f.Document, &own.Drive, text[stack.Drive]),
		"start":      yamldoc.Scalar(f.Document, &own.Start, text[stack.Start]),
		"arch":       yamldoc.Scalar(f.Document, &own.Arch, text[stack.Arch]),
		"release":    yamldoc.Scalar(f.Document, &own.Release, text[stack.Release]),
		"vcpus":      yamldoc.Scalar(f.Document, &own.VCPUs, yamldoc.Count(1, stack.MaxVCPUs)),
		"memory":     yamldoc.Scalar(f.Document, &own.Memory, yamldoc.MachineMemory),
		"vhost_poll": yamldoc.Scalar(f.Document, &own.VHostPoll, yamldoc.Microseconds(stack.MaxVHostPoll)),
		"queues":     yamldoc.Scalar(f.Document, &own.Queues, yamldoc.Count(1, stack.MaxQueues)),
		"host":       yamldoc.Scalar(f.Document, &own.Host, yamldoc.Text),
		"identity":   yamldoc.Scalar(f.Document, &own.Identity, yamldoc.Text),

		"domains":    f.NotEmpty(f.List(f.domain(&domains))),
		"neighbours": yamldoc.Scalar(f.Document, &neighbours, yamldoc.Count(0, maxNeighbours)),
	})
	if known, ok := stack.Named(c.Name); ok && !f.Has(path+".stack") {
		c = known
	}
	c.Network, c.Storage, c.Drive = cmp.Or(own.Network, c.Network), cmp.Or(own.Storage, c.Storage), cmp.Or(own.Drive, c.Drive)
	c.Start, c.Arch, c.VCPUs, c.Memory, c.Host, c.Identity = own.Start, own.Arch, own.VCPUs, own.Memory, own.Host, own.Identity
	c.VHostPoll, c.Queues, c.Release = own.VHostPoll, own.Queues, own.Release
	if f.addDomains(path, &c, domains, neighbours) {
		f.spec.Configurations = append(f.spec.Configurations, c)
	}
}

func (f *file) group(path string, n ast.Node) {
	g := group{path: path}
	p := &g.params
	f.Mapping(path, n, map[string]yamldoc.Key{
		"name":     yamldoc.Scalar(f.Document, &g.name, yamldoc.Name),
		"title":    yamldoc.Scalar(f.Document, &g.title, yamldoc.Text),
		"workload": yamldoc.Scalar(f.Document, &g.workload, yamldoc.Text),
		"protocol": yamldoc.Scalar(f.Document, &p.Protocol, text[workload.Protocol]),
		"sizes":    f.NotEmpty(yamldoc.Scalars(f.Document, &g.sizes, parseSize)),
		"duration": yamldoc.Scalar(f.Document, &p.Duration, yamldoc.Duration),

		"intensities": f.NotEmpty(yamldoc.Scalars(f.Document, &g.percents, parseIntensity)),
		"warmup":      yamldoc.Scalar(f.Document, &p.Warmup, yamldoc.DurationOrZero),
		"timeout":     yamldoc.Scalar(f.Document, &g.timeout, yamldoc.Duration),
		"options":     f.options(p),
		"probe":       yamldoc.Scalar(f.Document, &g.probe, text[Probe]),
		"suite":       yamldoc.Scalar(f.Document, &g.suite, yamldoc.Name),
		"repetitions": yamldoc.Scalar(f.Document, &g.blocks, yamldoc.Count(1, maxRepetitions)),
		"only":        f.NotEmpty(yamldoc.Scalars(f.Document, &g.only, yamldoc.Name)),
		"except":      f.NotEmpty(yamldoc.Scalars(f.Document, &g.except, yamldoc.Name)),
	})
	f.groups = append(f.groups, g)
}

func (f *file) options(p *workload.Params) yamldoc.Key {
	return func(path string, n ast.Node) {
		f.Mapping(path, n, map[string]yamldoc.Key{
			"nodelay":     yamldoc.Scalar(f.Document, &p.NoDelay, yamldoc.Bool),
			"threads":     yamldoc.Scalar(f.Document, &p.Threads, yamldoc.Count(1, math.MaxInt32)),
			"connections": yamldoc.Scalar(f.Document, &p.Connections, yamldoc.Count(1, math.MaxInt32)),
			"rate":        yamldoc.Scalar(f.Document, &p.Rate, yamldoc.Count(1, math.MaxInt32)),
			"step":        yamldoc.Scalar(f.Document, &p.Step, yamldoc.Count(1, math.MaxInt32)),
			"clients":     yamldoc.Scalar(f.Document, &p.Clients, yamldoc.Count(1, math.MaxInt32)),
		})
	}
}

// text accepts any word; its value is checked later.
func text[T ~string](word string) (T, error) {
	name, err := yamldoc.Text(word)
	return T(name), err
}

// Overcommit is a way to size nested machines (FitzGerald 2014, §2.4).
type Overcommit string

// The ways to size nested machines.
const (
	// Full gives each level all vCPUs and memory of the guest, so they are overcommitted.
	Full Overcommit = "full"
	// Reserved keeps one vCPU and 2 GiB of memory for each hypervisor: of 4 vCPUs
	// and 16 GiB, L1 has 3 and 14 GiB, L2 has 2 and 12 GiB. In a guest below 16 GiB a
	// hypervisor keeps an eighth, in whole MiB.
	Reserved Overcommit = "reserved"
)

// What a hypervisor keeps under Reserved.
const (
	keptVCPUs  = 1
	keptMemory = 2 << 30 // bytes, at most
	keptShare  = 8       // of the memory of the guest, the divisor
)

// Machines returns the resources of the machine of each level of c, from the host's
// level 0 up. Those of the host limit its cases, so that L0 does the same work as the
// levels above; the host itself is not limited. It fails when nothing is left for a
// level.
func (s *Spec) Machines(c stack.Configuration) ([]suite.Resources, error) {
	whole := suite.Resources{VCPUs: cmp.Or(c.VCPUs, s.Guest.VCPUs), Memory: cmp.Or(c.Memory, s.Guest.Memory)}
	machines := []suite.Resources{whole}
	for level := 1; level <= c.Level(); level++ {
		m := whole
		if s.Overcommit == Reserved {
			kept := keptOf(whole.Memory)
			m.VCPUs -= level * keptVCPUs
			m.Memory -= int64(level) * kept
			if m.VCPUs < 1 || m.Memory <= 0 {
				return nil, fmt.Errorf("overcommit reserved leaves nothing for level %d of stack %s: each hypervisor below keeps %d vCPU and %s, and the guest has vcpus %d and memory %s: raise them, or use overcommit full",
					level, c.Stack, keptVCPUs, stack.FormatBytes(kept), whole.VCPUs, stack.FormatBytes(whole.Memory))
			}
		}
		machines = append(machines, m)
	}
	return machines, nil
}

// keptOf returns the memory that a hypervisor keeps in a guest with this memory.
func keptOf(memory int64) int64 {
	const mebibyte = 1 << 20
	return min(keptMemory, memory/keptShare/mebibyte*mebibyte)
}

// Resources returns the resources of the innermost machine of c, which its cases use.
func (s *Spec) Resources(c stack.Configuration) (suite.Resources, error) {
	machines, err := s.Machines(c)
	if err != nil {
		return suite.Resources{}, err
	}
	innermost := machines[len(machines)-1]
	innermost.Whole = machines[0].Memory
	return innermost, nil
}

// The parsers of single values. Their errors give the accepted values and the found one.

func parseAny(text string) (string, error) { return text, nil }

func parseSeed(text string) (uint64, error) {
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil || n == 0 {
		return 0, fmt.Errorf("want a whole number above 0, got %q", text)
	}
	return n, nil
}

// parseSize parses the size of a message, at most 1 GiB.
func parseSize(text string) (int, error) {
	n, err := yamldoc.Bytes(text)
	if err == nil && n > 1<<30 {
		err = fmt.Errorf("want at most 1GiB, got %q", text)
	}
	return int(n), err
}

// parsePercent parses 3%, 0.5% and 2.5 % as a fraction.
func parsePercent(text string) (float64, error) {
	digits, ok := strings.CutSuffix(text, "%")
	percent, err := strconv.ParseFloat(strings.TrimSpace(digits), 64)
	if !ok || err != nil || !(percent > 0 && percent < 100) {
		return 0, fmt.Errorf("want a percentage between 0%% and 100%% such as 3%% or 0.5%%, got %q", text)
	}
	return percent / 100, nil
}

// parseIntensity parses a load in percent of the full load: 10%.
func parseIntensity(text string) (int, error) {
	digits, ok := strings.CutSuffix(text, "%")
	n, err := strconv.Atoi(strings.TrimSpace(digits))
	if !ok || err != nil || n < 1 || n > maxIntensity {
		return 0, fmt.Errorf("want a whole percentage from 1%% to %d%%, got %q", maxIntensity, text)
	}
	return n, nil
}

// maxIntensity is twice the full load.
const maxIntensity = 200

// oneOf returns a parser of words.
func oneOf[T ~string](words ...T) func(string) (T, error) {
	return func(text string) (T, error) {
		if !slices.Contains(words, T(text)) {
			var list []string
			for _, w := range words {
				list = append(list, string(w))
			}
			return "", fmt.Errorf("want %s, got %q", strings.Join(list, " or "), text)
		}
		return T(text), nil
	}
}
