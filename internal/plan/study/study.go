// Package study plans the pods of a user in every way, and says how far the best plan is from
// the cheapest. It brings package pack and package bound together: the patterns that a bound
// generates make a plan, which pack improves.
package study

import (
	"fmt"
	"slices"

	"unnest.io/unnest/internal/plan/bound"
	"unnest.io/unnest/internal/plan/cluster"
	"unnest.io/unnest/internal/plan/pack"
)

// Of compares the plans of a user: see pack.Compare. It returns a lower bound of the cost of
// every plan too. Whole and Best are the cheapest of what pack finds and of the patterns of
// their bounds. They keep the user's spreads: see raised.
func Of(u cluster.User, c cluster.Catalogue, o pack.Options, now ...cluster.Plan) (pack.Comparison, int64, error) {
	s, low, err := strict(u, c, o, now...)
	for _, limits := range raised(u.Limits) {
		if err != nil || s.Best.Cost <= low && s.Whole.Cost <= low {
			break
		}
		more := s.User
		more.Limits = limits
		whole := pack.Unsplit(more)
		found, err := pack.Best(whole, c, o)
		if err != nil {
			return s, low, err
		}
		if found, _, err = closer(whole, c, o, bound.Options{Whole: true, Columns: true}, found); err != nil {
			return s, low, err
		}
		if found.Cost < s.Whole.Cost && more.Keeps(found.Plan) {
			s.Whole = found
		}
		if s.Whole.Cost < s.Best.Cost {
			s.Best = s.Whole
		}
	}
	return s, low, err
}

// raised returns limits that allow more of each spread on a VM, the most first. A plan within them
// is legal only if it keeps the spreads, which planners do not try to. The strict limits allow as
// many as are legal whatever is on other VMs.
func raised(limits []cluster.Limit) (all [][]cluster.Limit) {
	most := int64(0)
	for _, l := range limits {
		if l.Skew > 0 && l.Nodes == nil {
			most = max(most, l.Legal-l.Most)
		}
	}
	for by := min(most, mostRaised); by > 0; by /= 2 {
		more := slices.Clone(limits)
		for i := range more {
			if l := &more[i]; l.Skew > 0 && l.Nodes == nil {
				l.Most = min(l.Most+by, l.Legal)
			}
		}
		all = append(all, more)
	}
	return all
}

// mostRaised is how many more pods of a spread a VM may have than the skew.
const mostRaised = 64

// strict compares the plans within the user's limits.
func strict(u cluster.User, c cluster.Catalogue, o pack.Options, now ...cluster.Plan) (pack.Comparison, int64, error) {
	quick := o
	quick.Quick = true // closer searches on where that is worth it
	s, err := pack.Compare(u, c, quick, now...)
	if err != nil {
		return s, 0, err
	}
	if !pack.Splittable(s.User) {
		low := int64(0)
		if s.Best, low, err = closer(s.User, c, o, bound.Options{}, s.Best); err == nil {
			s.Whole = s.Best
		}
		return s, low, err
	}
	if s.Whole, _, err = closer(pack.Unsplit(s.User), c, o, bound.Options{Whole: true, Columns: true}, s.Whole); err != nil {
		return s, 0, err
	}
	if s.Whole.Cost < s.Best.Cost {
		s.Best = s.Whole
		s.Best.Optimal = false // of plans that split
	}
	low := int64(0)
	var limits bound.Options
	if s.Bundled > 1 {
		limits.MaxTypes = bundledTypes
	}
	if s.Best, low, err = closer(s.User, c, o, limits, s.Best); err != nil || s.Bundled < 2 {
		return s, low, err
	}
	low, err = unbundled(u, c, o, s.Best.Cost)
	return s, low, err
}

// bundledTypes is the most distinct items of a bundled user for whom there are patterns: bundles
// of one size of container have several sizes.
const bundledTypes = 400

// unbundled returns the bound of a user of whom bundles were planned: the containers of a bundle
// may be on several VMs.
func unbundled(u cluster.User, c cluster.Catalogue, o pack.Options, known int64) (int64, error) {
	fit, _, err := pack.Fit(u, c, o.Oversize)
	if err != nil {
		return 0, err
	}
	return bound.Of(fit, c, bound.Options{Known: known}).Best, nil
}

// closer searches on from a plan until it costs the bound, which it returns too. It starts from
// that plan and from one made of the patterns of the bound.
func closer(u cluster.User, c cluster.Catalogue, o pack.Options, limits bound.Options, found pack.Outcome) (pack.Outcome, int64, error) {
	if found.Optimal && !u.Loose() {
		return found, found.Cost, nil
	}
	limits.Known = found.Cost
	thorough := o.Effort > pack.DefaultEffort && o.Host == (cluster.Resources{})
	limits.Columns = limits.Columns && !thorough
	r := bound.Of(u, c, limits)
	if thorough {
		filled, ok, err := pack.Fill(u, c, o, r.Purchases(found.Cost))
		if err != nil {
			return found, 0, fmt.Errorf("user %s: fill: %w", u.Name, err)
		}
		if ok {
			found = filled
		}
	}
	starts := []cluster.Plan{found.Plan}
	if r.Best < found.Cost && o.Host == (cluster.Resources{}) {
		if plan, ok := r.Plan(u, c, limits.Whole, o.Effort > pack.DefaultEffort); ok {
			starts = []cluster.Plan{plan, found.Plan}
		}
	}
	o.Floor = r.Best
	for _, start := range starts {
		if r.Best >= found.Cost {
			break
		}
		better, err := pack.Improve(u, c, o, start)
		if err != nil {
			return found, 0, fmt.Errorf("user %s: patterns: %w", u.Name, err)
		}
		if better.Cost < found.Cost {
			found = better
		}
	}
	return found, r.Best, nil
}

// Sized plans the pods of a user that was studied, with other requests. Its plans cost at most
// those before as far as those hold the pods. It reports false if the two cannot be compared,
// because a pod is left out or cut before or after.
func Sized(sized cluster.User, c cluster.Catalogue, o pack.Options, before pack.Comparison, now ...cluster.Plan) (pack.Comparison, int64, bool, error) {
	fit, left, err := pack.Fit(sized, c, o.Oversize)
	if err != nil || len(left)+len(before.Left) > 0 || len(fit.Pods) != len(sized.Pods) || len(before.User.Pods) != len(sized.Pods) {
		return pack.Comparison{}, 0, false, err
	}
	starts := slices.DeleteFunc(append(slices.Clone(now), before.Whole.Plan), func(plan cluster.Plan) bool { return !pack.Holds(sized, c, plan) || !sized.Within(plan) })
	s, low, err := Of(sized, c, o, starts...)
	if err == nil && before.Best.Cost < s.Best.Cost && pack.Holds(sized, c, before.Best.Plan) {
		s.Best = before.Best
		s.Best.Optimal = false
	}
	return s, low, true, err
}
