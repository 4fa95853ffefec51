package experiment

import (
	"fmt"
	"slices"
	"time"

	"github.com/goccy/go-yaml/ast"

	"unnest.io/unnest/internal/measure/collocation"
	"unnest.io/unnest/internal/measure/stack"
	"unnest.io/unnest/internal/measure/workload"
	"unnest.io/unnest/internal/yamldoc"
)

// maxNeighbours limits the idle neighbours of a configuration.
const maxNeighbours = 15

// domain decodes one domain of a configuration.
func (f *file) domain(all *[]stack.Domain) func(path string, n ast.Node) {
	return func(path string, n ast.Node) {
		d, active := stack.Domain{}, true
		f.Mapping(path, n, map[string]yamldoc.Key{
			"type":   yamldoc.Scalar(f.Document, &d.Type, oneOf(stack.DomainTypes()...)),
			"active": yamldoc.Scalar(f.Document, &active, yamldoc.Bool),
			"size":   yamldoc.Scalar(f.Document, &d.Size, parseSize),
			"weight": yamldoc.Scalar(f.Document, &d.Weight, yamldoc.Count(2, 1<<18)),
		})
		f.Require(path, "type")
		d.Idle = !active
		*all = append(*all, d)
	}
}

// addDomains gives a configuration its domains, and idle neighbours of the type of the first one.
func (f *file) addDomains(path string, c *stack.Configuration, domains []stack.Domain, neighbours int) bool {
	if len(domains) == 0 {
		if f.Has(path + ".neighbours") {
			f.Fail(path+".neighbours", "key domains is missing: neighbours are idle domains of the type of the first one")
		}
		return true
	}
	if f.Has(path + ".stack") {
		f.Fail(path+".stack", "domains have the stacks of their types: leave it out")
		return false
	}
	c.Domains, c.Stack = domains, domains[0].Type.Stack()
	for range neighbours {
		c.Domains = append(c.Domains, stack.Domain{Type: domains[0].Type, Idle: true})
	}
	return len(c.Stack) > 0
}

// OfDomains reports whether the configurations are domains that run next to each other.
func (s *Spec) OfDomains() bool {
	return slices.ContainsFunc(s.Configurations, func(c stack.Configuration) bool { return c.Domains != nil })
}

// checkDomains refuses an experiment with domains and with single stacks.
func (f *file) checkDomains() {
	if !f.spec.OfDomains() {
		return
	}
	for i, c := range f.spec.Configurations {
		if c.Domains == nil {
			f.Fail(fmt.Sprintf("configurations[%d]", i), "key domains is missing: other configurations have domains")
		}
	}
}

// checkDomainCase refuses a load of domains without domains, and domains with another load.
func (f *file) checkDomainCase(g group) bool {
	switch domains := f.spec.OfDomains(); {
	case domains && g.workload != "apache":
		f.Fail(g.path+".workload", "domains are loaded by workload apache only, got %q", g.workload)
	case domains && g.sizes == nil:
		f.Fail(g.path, "key sizes is missing: give the sizes of the documents")
	case domains && g.params.Rate > 0:
		f.Fail(g.path+".options.rate", "domains are loaded with intensities, or more and more: leave it out")
	case domains && g.params.Threads > 0:
		f.Fail(g.path+".options.threads", "each load generator of domains has a thread for every processor of the generators: leave it out")
	case !domains && g.params.Step+g.params.Clients > 0:
		f.Fail(g.path+".options", "options step and clients are of the load of domains: leave them out")
	case !domains && g.percents != nil:
		f.Fail(g.path+".intensities", "intensities are of the load of domains: leave them out")
	default:
		return true
	}
	return false
}

// addIntensities adds a case for each intensity and size of the group.
func (f *file) addIntensities(g group, w workload.Workload) {
	for i, percent := range g.percents {
		if slices.Contains(g.percents[:i], percent) {
			f.Fail(fmt.Sprintf("%s.intensities[%d]", g.path, i), "%d%% is listed twice", percent)
			return
		}
		one := g
		one.name = fmt.Sprintf("%s@%d", g.name, percent)
		if g.title == "" {
			one.title = g.name
		}
		one.title = fmt.Sprintf("%s at %d %% of full load", one.title, percent)
		one.params.Intensity = percent
		f.addSizes(one, w)
	}
}

// rampSteps is the assumed number of steps until the throughput of a server falls, and stepPause
// the time between them.
const (
	rampSteps = 14
	stepPause = 500 * time.Millisecond
)

func (c *Case) ofDomains() {
	c.Intensity, c.Primary, c.Metrics = c.Params.Intensity, collocation.Aggregate, collocation.Metrics()
	if c.Intensity == 0 {
		c.Wall = rampSteps * (c.Params.Warmup + c.Params.Duration + stepPause)
	}
}
