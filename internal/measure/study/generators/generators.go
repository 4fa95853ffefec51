// Package generators is the study that compares our load generator with others on one server.
package generators

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"unnest.io/unnest/internal/measure/experiment"
	"unnest.io/unnest/internal/measure/machines"
	"unnest.io/unnest/internal/measure/stack"
	"unnest.io/unnest/internal/measure/study/clientserver"
	"unnest.io/unnest/internal/measure/workload"
	"unnest.io/unnest/internal/testbed/place"
)

// Suite is the suite of an experiment that compares load generators.
const Suite = "generators"

// Study compares our load generator with others on one server. A configuration has the name of
// the program that loads.
type Study struct{ *clientserver.Study }

// New returns the study on machines.
func New(s *machines.Set) *Study { return &Study{clientserver.New(s)} }

// ownGenerator is the configuration of our load generator.
const ownGenerator = "unnest-load"

// Check returns an error unless the study can measure the configuration.
func (g *Study) Check(c stack.Configuration) error {
	names := []string{ownGenerator}
	for _, p := range workload.Peers() {
		names = append(names, p.Name)
	}
	if !slices.Contains(names, c.Name) || c.Stack.String() != "metal" {
		return fmt.Errorf("the suite generators compares the configurations %s, with stack metal: use these", strings.Join(names, ", "))
	}
	return nil
}

// Begin finds the versions of the others, too.
func (g *Study) Begin(ctx context.Context) error {
	for _, p := range workload.Peers() {
		out, err := place.Output(ctx, place.Local{}, p.VersionArgs()...)
		version := machines.VersionNumber.FindString(string(out))
		if err != nil || version == "" {
			return fmt.Errorf("find the version of %s: it prints no version: install it by `apt-get install %s`", p.Name, p.Name)
		}
		g.FoundTool(p.Name, version)
	}
	return g.Study.Begin(ctx)
}

// Next does nothing: no generator is started early.
func (g *Study) Next([]experiment.Execution) {}

// Execute loads the server of the first configuration, so that all load the same one.
func (g *Study) Execute(ctx context.Context, e experiment.Execution) (experiment.Outcome, error) {
	one := g.Instances[g.Spec.Configurations[0].Name]
	if err := one.Serving(ctx, e.Case); err != nil {
		return experiment.Outcome{}, err
	}
	p, target := e.Case.Params, one.Endpoint(e.Case)
	p.Size = e.Case.Size
	command, parse := workload.OwnCommand(p, target), e.Case.Workload().Parse
	command[0] = filepath.Join(g.Options.Binaries, filepath.Base(command[0]))
	if e.Configuration.Name != ownGenerator {
		i := slices.IndexFunc(workload.Peers(), func(peer workload.Peer) bool { return peer.Name == e.Configuration.Name })
		peer := workload.Peers()[i]
		if peer.Open != (p.Rate > 0) {
			return experiment.Outcome{}, fmt.Errorf("%w: %s does not load so", experiment.ErrUnsupported, peer.Name)
		}
		command, parse = peer.Command(p, target), peer.Parse
	}
	printed, err := place.Output(ctx, g.Client, command...)
	if err != nil && len(printed) == 0 {
		return experiment.Outcome{}, err
	}
	out, err := parse(p, printed)
	return experiment.Outcome{Values: out.Values, Boot: one.Machines.Servers().Boot}, err
}
