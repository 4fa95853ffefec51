package bound

// simplex is the revised simplex method with an explicit inverse, for min Σ cost·x subject to
// Σ entries·x = right-hand side, x ≥ 0 (Dantzig; Chvátal, Linear Programming, 1983, chapter 7).
// Columns may be added between solutions. It is for a few hundred rows. Results have rounding
// errors, so they prove nothing.
type simplex struct {
	columns []column
	basis   []int       // the basic column of each row
	x       []float64   // value of the basic variable of each row
	inverse [][]float64 // of the matrix of basic columns
	some    []int       // for pivot: the columns of a row of inverse that are not 0, few at first
}

// column is one variable. Rows without an entry have 0.
type column struct {
	cost    float64
	entries []entry
}

type entry struct {
	row   int
	value float64
}

const (
	// costTolerance is how far below 0 a reduced cost must be, relative to the cost.
	costTolerance = 1e-10
	// minPivot is the smallest value that counts as different from 0.
	minPivot = 1e-9
)

// newSimplex starts with one column for each row, whose only entry is above 0 in that row. The
// right-hand side must not be negative.
func newSimplex(right []float64, start []column) *simplex {
	s := &simplex{columns: start}
	for row, c := range start {
		value := c.entries[0].value
		inverse := make([]float64, len(right))
		inverse[row] = 1 / value
		s.inverse = append(s.inverse, inverse)
		s.basis = append(s.basis, row)
		s.x = append(s.x, right[row]/value)
	}
	return s
}

func (s *simplex) add(c column) { s.columns = append(s.columns, c) }

func (s *simplex) value() float64 {
	sum := 0.0
	for row, j := range s.basis {
		sum += s.columns[j].cost * s.x[row]
	}
	return sum
}

// prices returns the dual variables: the cost of one more unit of each right-hand side.
func (s *simplex) prices() []float64 {
	y := make([]float64, len(s.basis))
	for row, j := range s.basis {
		cost := s.columns[j].cost
		if cost == 0 {
			continue
		}
		for k, v := range s.inverse[row] {
			y[k] += cost * v
		}
	}
	return y
}

// reduced returns the reduced cost: the cost of a column less the price of its entries.
func (c *column) reduced(prices []float64) float64 {
	r := c.cost
	for _, e := range c.entries {
		r -= e.value * prices[e.row]
	}
	return r
}

// improves reports whether entering the column would lower the cost.
func (c *column) improves(prices []float64) bool { return c.enters(c.reduced(prices)) }

// enters is improves for a known reduced cost.
func (c *column) enters(reduced float64) bool {
	return reduced < -costTolerance*max(1e-3, c.cost, -c.cost)
}

// solve pivots until no column improves, at most so many times.
func (s *simplex) solve(pivots int) {
	stalled := 0
	prices := s.prices()
	for range pivots {
		j := s.entering(prices, stalled > 2*len(s.basis))
		if j < 0 {
			return
		}
		direction := s.direction(s.columns[j])
		row := s.leaving(direction)
		if row < 0 {
			return
		}
		stalled++
		if s.x[row] > minPivot {
			stalled = 0
		}
		reduced := s.columns[j].reduced(prices)
		s.pivot(row, j, direction)
		if len(s.basis) <= fewTypes {
			prices = s.prices()
			continue
		}
		// To compute them again takes the square of the rows. The rounding errors of this cost proofs
		// that a plan is optimal, which large users do not reach.
		for k, v := range s.inverse[row] {
			prices[k] += reduced * v
		}
	}
}

// entering returns the column to enter, -1 if none improves: the one with the least reduced
// cost, or with first the first one, which is Bland's rule against cycling.
func (s *simplex) entering(prices []float64, first bool) int {
	best, least := -1, 0.0
	for j := range s.columns {
		c := &s.columns[j]
		r := c.reduced(prices)
		if r >= least || !c.enters(r) {
			continue
		}
		best, least = j, r
		if first {
			break
		}
	}
	return best
}

// direction returns the decrease of each basic variable per unit of the column.
func (s *simplex) direction(c column) []float64 {
	d := make([]float64, len(s.basis))
	for row := range d {
		for _, e := range c.entries {
			d[row] += s.inverse[row][e.row] * e.value
		}
	}
	return d
}

// leaving returns the row whose variable reaches 0 first, -1 if none does; of several, the one
// with the largest pivot.
func (s *simplex) leaving(direction []float64) int {
	best, least := -1, 0.0
	for row, d := range direction {
		if d <= minPivot {
			continue
		}
		step := max(0, s.x[row]) / d
		if best < 0 || step < least || step == least && d > direction[best] {
			best, least = row, step
		}
	}
	return best
}

// pivot puts column j into the basis in a row.
func (s *simplex) pivot(row, j int, direction []float64) {
	scale := 1 / direction[row]
	from := s.inverse[row]
	some := s.some[:0]
	for k := range from {
		from[k] *= scale
		if from[k] != 0 {
			some = append(some, k)
		}
	}
	s.x[row] *= scale
	for other, d := range direction {
		if other == row || d == 0 {
			continue
		}
		to := s.inverse[other][:len(from)]
		if 2*len(some) < len(from) {
			for _, k := range some {
				to[k] -= d * from[k]
			}
		} else {
			for k, v := range from {
				to[k] -= d * v
			}
		}
		s.x[other] -= d * s.x[row]
	}
	s.basis[row], s.some = j, some
}
