package pack

import (
	"fmt"

	"unnest.io/unnest/internal/plan/cluster"
)

// Comparison is the plans of all planners for one user.
type Comparison struct {
	User       cluster.User // as planned: see Fit and Bundle
	Left       []Left
	Containers int     // of the user, each on its own
	Bundled    int     // containers that are planned as one, at most
	Kubernetes Outcome // see Kubernetes
	Resize     Outcome // Kubernetes, then Resize
	Hostlo     Outcome // Kubernetes, then Hostlo
	Spread     Outcome // Spread, then Hostlo; may cost more than Kubernetes, because it leaves less room for later pods
	Whole      Outcome // Best for pods that stay whole: see Unsplit
	Best       Outcome // see Best
}

// Compare runs all planners for a user. Kubernetes ≥ Hostlo ≥ Best, Kubernetes ≥ Whole ≥
// Best, and Spread ≥ Best. Users are independent of each other, so callers may run many
// at once. If all pods fit, Whole and Best also improve the plans now, which do not split pods.
func Compare(u cluster.User, c cluster.Catalogue, o Options, now ...cluster.Plan) (Comparison, error) {
	fit, left, err := Fit(u, c, o.Oversize)
	if err != nil {
		return Comparison{}, err
	}
	s := Comparison{Left: left, Containers: containers(fit)}
	fit, s.Bundled = Bundle(fit, c, o.Bundle)
	s.User = fit
	fail := func(what string, err error) (Comparison, error) {
		return Comparison{}, fmt.Errorf("user %s: %s: %w", u.Name, what, err)
	}
	if s.Kubernetes, err = Kubernetes(fit, c, o); err != nil {
		return fail("kubernetes", err)
	}
	if s.Resize, err = Resize(fit, c, s.Kubernetes.Plan, o); err != nil {
		return fail("resize", err)
	}
	if s.Hostlo, err = Hostlo(fit, c, s.Kubernetes.Plan, o); err != nil {
		return fail("hostlo", err)
	}
	spread, err := Spread(fit, c, o)
	if err != nil {
		return fail("spread", err)
	}
	if s.Spread, err = Hostlo(fit, c, spread.Plan, o); err != nil {
		return fail("spread", err)
	}
	s.Spread.Steps = append(spread.Steps, s.Spread.Steps...)
	if len(left) > 0 {
		now = nil // it has other pods
	}
	if !Splittable(fit) {
		if s.Best, err = Best(fit, c, o, append(now, s.Kubernetes.Plan, s.Hostlo.Plan, s.Spread.Plan)...); err != nil {
			return fail("best", err)
		}
		s.Whole = s.Best
		return s, nil
	}
	if s.Whole, err = Best(Unsplit(fit), c, o, append(now, s.Kubernetes.Plan)...); err != nil {
		return fail("whole", err)
	}
	if s.Best, err = Best(fit, c, o, s.Hostlo.Plan, s.Spread.Plan, s.Whole.Plan); err != nil {
		return fail("best", err)
	}
	return s, nil
}
