package domains

import (
	"context"
	"fmt"
	"strings"
	"time"

	"unnest.io/unnest/internal/measure/experiment"
	"unnest.io/unnest/internal/measure/stack"
)

// fullOf is what a full load is of: the throughput that a domain of the type reaches alone.
type fullOf struct {
	kind stack.DomainType
	size int
}

// The load of the steps by which the full loads are found.
const (
	stepWarmup   = 300 * time.Millisecond
	stepDuration = 1200 * time.Millisecond
)

// findFullLoads raises the load of one domain of each type and size that the cases load with a
// share of the full load, alone, until its throughput falls.
func (s *Study) findFullLoads(ctx context.Context) error {
	for _, c := range s.Spec.Configurations {
		for _, i := range c.Active() {
			for _, k := range s.Spec.Cases {
				of := fullOf{c.Domains[i].Type, sizeOf(c.Domains[i], k)}
				if k.Intensity == 0 || s.full[of] > 0 {
					continue
				}
				s.Options.Progress.Phase(fmt.Sprintf("find the full load of %s with %d B", strings.ToUpper(string(of.kind)), of.size))
				if err := s.findFullLoad(ctx, of, k); err != nil {
					return fmt.Errorf("find the full load of %s with %d B: %w", of.kind, of.size, err)
				}
			}
		}
	}
	return nil
}

func (s *Study) findFullLoad(ctx context.Context, of fullOf, k experiment.Case) error {
	k.Params.Intensity, k.Params.Warmup, k.Params.Duration, k.Size = 0, stepWarmup, stepDuration, of.size
	alone := stack.Configuration{Name: string(of.kind), Stack: of.kind.Stack(), Domains: []stack.Domain{{Type: of.kind}}}
	peak, err := s.raise(ctx, experiment.Execution{Configuration: alone, Case: k})
	if err != nil {
		return err
	}
	s.full[of] = peak.loads[0].throughput()
	text := fmt.Sprintf("The full load of %s with documents of %d B was %.0f requests/s.", strings.ToUpper(string(of.kind)), of.size, s.full[of])
	s.Holds(text)
	if peak.limit != "" {
		s.Note(text + " The load generator was at its limit or late: " + peak.limit + ".")
	}
	return nil
}
