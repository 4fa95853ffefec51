package study

import (
	"unnest.io/unnest/internal/plan/cluster"
	"unnest.io/unnest/internal/plan/pack"
)

// Sized plans the pods of a user that was studied, with other requests. Its plans cost at most
// those before as far as those hold the pods. It reports false if the two cannot be compared,
// because a pod is left out or cut before or after.
func Sized(sized cluster.User, c cluster.Catalogue, o pack.Options, before pack.Comparison, now ...cluster.Plan) (pack.Comparison, int64, bool, error) {
	fit, left, err := pack.Fit(sized, c, o.Oversize)
	if err != nil || len(left)+len(before.Left) > 0 || len(fit.Pods) != len(sized.Pods) || len(before.User.Pods) != len(sized.Pods) {
		return pack.Comparison{}, 0, false, err
	}
	var starts []cluster.Plan
	for _, plan := range append(now, before.Whole.Plan) {
		if pack.Holds(sized, c, plan) && sized.Within(plan) {
			starts = append(starts, plan)
		}
	}
	s, low, err := Of(sized, c, o, starts...)
	if err == nil && before.Best.Cost < s.Best.Cost && pack.Holds(sized, c, before.Best.Plan) {
		s.Best = before.Best
		s.Best.Optimal = false
	}
	return s, low, true, err
}
