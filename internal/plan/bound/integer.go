package bound

import (
	"iter"
	"math"
	"slices"
)

// integerProgram finds the cheapest whole VMs that satisfy inequalities: the integer program of
// the relaxation that combine solves. It uses iterative deepening (Korf, Depth-first
// iterative-deepening, Artificial Intelligence 27, 1985): while no solution costs at most the
// limit, the limit rises to the least cost that is not excluded. So the limit is a bound
// whenever the search ends.
type integerProgram struct {
	offers []offer
	rows   []inequality
	step   int64
	rate   [][]float64 // lowest price of a unit of weight, by last offer allowed and row
	limit  int64
	above  int64   // least cost above the limit that is not excluded
	nodes  int     // left
	least  int64   // cost of a solution; above 0, the limit is no bound, because VMs that no row needs are not tried
	found  bool    // a solution
	vms    []int64 // of each offer in it
	effort int     // nodes of each search
}

// newIntegerProgram prepares a search with at most so many nodes, divided among the rows.
func (p *relaxation) newIntegerProgram(rows []inequality, nodes int) *integerProgram {
	s := &integerProgram{offers: p.offers, rows: distinct(rows), step: p.step, vms: make([]int64, len(p.offers))}
	s.effort = nodes / max(1, len(s.rows))
	for m, o := range s.offers {
		rate := make([]float64, len(s.rows))
		for r, row := range s.rows {
			rate[r] = math.Inf(1)
			if row.most[m] > 0 {
				rate[r] = float64(o.price) / float64(row.most[m])
			}
			if m > 0 {
				rate[r] = min(rate[r], s.rate[m-1][r])
			}
		}
		s.rate = append(s.rate, rate)
	}
	return s
}

// distinct removes inequalities that are multiples of others.
func distinct(rows []inequality) []inequality {
	var all []inequality
	for _, row := range rows {
		scale := row.total
		for _, k := range row.most {
			scale = gcd(scale, max(0, k))
		}
		scaled := inequality{total: row.total / scale}
		for _, k := range row.most {
			scaled.most = append(scaled.most, max(0, k)/scale)
		}
		all = append(all, scaled)
	}
	compare := func(a, b inequality) int {
		return slices.Compare(append(a.most, a.total), append(b.most, b.total))
	}
	slices.SortFunc(all, compare)
	return slices.CompactFunc(all, func(a, b inequality) bool { return compare(a, b) == 0 })
}

// solve returns the cost of the cheapest solution that costs at least least, known if that is
// reached and not 0, or a lower bound when no nodes are left.
func (s *integerProgram) solve(least, known int64) int64 {
	need := make([]int64, len(s.rows))
	for r, row := range s.rows {
		need[r] = row.total
	}
	s.limit, s.nodes, s.found = least, s.effort, false
	for known == 0 || s.limit < known {
		s.above = math.MaxInt64
		s.found = s.buy(len(s.offers)-1, 0, need) && s.nodes > 0
		if s.found || s.nodes <= 0 || s.above == math.MaxInt64 {
			return s.limit
		}
		s.limit = s.above
	}
	return known
}

// Purchases yields VMs that satisfy all inequalities of WholeVMs, by their models, below a cost: for
// some costs from WholeVMs on, ascending, those with the most VMs of the dearest models. It ends
// early if a search does.
func (r Result) Purchases(below int64) iter.Seq[[]int] {
	return func(yield func([]int) bool) {
		s := r.program
		for cost := r.WholeVMs; s != nil && s.step > 0 && cost < below; cost += s.step {
			s.least = cost
			if cost = s.solve(cost, below); !s.found {
				return
			}
			var models []int
			for m, n := range s.vms {
				models = append(models, slices.Repeat([]int{s.offers[m].model}, int(n))...)
			}
			if !yield(models) {
				return
			}
		}
	}
}

// buy tries all numbers of VMs of the m-th offer and those before it, and reports whether any
// satisfies the rows within the limit. It also reports true when no nodes are left, because
// nothing is excluded then.
func (s *integerProgram) buy(m int, cost int64, need []int64) bool {
	if m < 0 {
		return cost >= s.least && !slices.ContainsFunc(need, func(n int64) bool { return n > 0 })
	}
	rest := make([]int64, len(need))
	for n := s.most(m, cost, need); n >= 0; n-- {
		if s.nodes--; s.nodes <= 0 {
			return true
		}
		reached := cost + n*s.offers[m].price
		for r, row := range s.rows {
			rest[r] = need[r] - n*row.most[m]
		}
		at := s.atLeast(m-1, reached, rest)
		if at > s.limit {
			s.above = min(s.above, at)
			continue
		}
		s.vms[m] = n
		if s.buy(m-1, reached, rest) {
			return true
		}
	}
	return false
}

// most returns the largest useful number of VMs of the m-th offer within the limit.
func (s *integerProgram) most(m int, cost int64, need []int64) int64 {
	enough, price := s.enough(m, need), s.offers[m].price
	if price == 0 {
		return enough
	}
	if n := (s.limit - cost) / price; n < enough {
		s.above = min(s.above, cost+(n+1)*price)
		return n
	}
	return enough
}

// enough returns the number of VMs of the m-th offer that satisfies all rows.
func (s *integerProgram) enough(m int, need []int64) int64 {
	most := int64(0)
	for r, row := range s.rows {
		if k := row.most[m]; k > 0 && need[r] > 0 {
			most = max(most, (need[r]+k-1)/k)
		}
	}
	return most
}

// atLeast returns a lower bound of the final cost, from single rows: the cost so far and the
// price of the remaining need on offers up to the m-th. It allows for rounding errors.
func (s *integerProgram) atLeast(m int, cost int64, need []int64) int64 {
	more := 0.0
	for r, n := range need {
		if n <= 0 {
			continue
		}
		if m < 0 {
			return math.MaxInt64
		}
		more = max(more, float64(n)*s.rate[m][r])
	}
	if s.step == 0 {
		return cost
	}
	steps := math.Ceil(more * (1 - 1e-9) / float64(s.step))
	if steps > 1e15 || steps*float64(s.step) > math.MaxInt64/2 {
		return math.MaxInt64
	}
	return cost + int64(steps)*s.step
}
