package bound

import (
	"math"
	"math/rand/v2"
	"testing"
)

// TestSuperadditive checks what the large-item bound rests on, for all small
// parameters: f(x) + f(y) ≤ f(x+y), which also makes f grow.
func TestSuperadditive(t *testing.T) {
	check := func(name string, p, q int64, f func(int64) int64) {
		if f(0) != 0 {
			t.Fatalf("%s(0) with %d, %d is %d", name, p, q, f(0))
		}
		for x := range int64(90) {
			for y := range x + 1 {
				if f(x)+f(y) > f(x+y) || f(x) < 0 {
					t.Fatalf("%s with %d, %d: %d of %d and %d of %d, but %d of the sum", name, p, q, f(x), x, f(y), y, f(x+y))
				}
			}
		}
	}
	for p := int64(1); p <= 24; p++ {
		for q := range p {
			check("rounded", p, q, func(x int64) int64 { return rounded(x, p, q) })
			if q > 0 && 2*q <= p {
				check("polarized", p, q, func(x int64) int64 { return polarized(x, p, q) })
			}
		}
	}
}

// heaviestPattern tries all patterns.
func heaviestPattern(demands []demand, weights []int64, room extent) int64 {
	if len(demands) == 0 {
		return 0
	}
	best := int64(0)
	for n := range demands[0].copies(room) + 1 {
		best = max(best, n*weights[0]+heaviestPattern(demands[1:], weights[1:], room.without(demands[0].size, n)))
	}
	return best
}

func TestKnapsack(t *testing.T) {
	rng := rand.New(rand.NewPCG(11, 12))
	cut := 0
	for range 3000 {
		var demands []demand
		var weights []int64
		full := extent{rng.Int64N(30), rng.Int64N(30), rng.Int64N(5)}
		for range 1 + rng.IntN(6) {
			demands = append(demands, demand{extent{rng.Int64N(16), rng.Int64N(16), rng.Int64N(2)}, 1 + rng.Int64N(4)})
			weights = append(weights, rng.Int64N(1<<rng.IntN(40)))
		}
		want := heaviestPattern(demands, weights, full)
		k := newKnapsack(demands, weights, full, 1_000_000)
		k.solve()
		if k.best != want || k.open != 0 {
			t.Fatalf("best %d, open %d, want %d: %+v, weights %v in %v", k.best, k.open, want, demands, weights, full)
		}
		sum, room := int64(0), full
		for i, n := range k.pattern {
			if sum, room = sum+n*weights[i], room.without(demands[i].size, n); n > demands[i].count {
				t.Fatalf("pattern %v has more than there is: %+v", k.pattern, demands)
			}
		}
		if sum != want || !(extent{}).fits(room) {
			t.Fatalf("pattern %v weighs %d and leaves %v, want %d: %+v", k.pattern, sum, room, want, demands)
		}
		k = newKnapsack(demands, weights, full, rng.IntN(4))
		k.solve()
		if k.best > want || max(k.best, k.open) < want {
			t.Fatalf("cut short: best %d, open %d, want %d between: %+v, weights %v in %v", k.best, k.open, want, demands, weights, full)
		}
		if k.open > k.best {
			cut++
		}
	}
	if cut < 100 {
		t.Errorf("only %d of 3000 searches were cut short", cut)
	}
}

// TestSimplex solves what Chvátal solves in chapter 2: max 5x+4y+3z subject to
// 2x+3y+z ≤ 5, 4x+y+2z ≤ 11, 3x+4y+2z ≤ 8; it is 13 at x = 2, y = 0, z = 1.
func TestSimplex(t *testing.T) {
	s := newSimplex([]float64{5, 11, 8}, []column{
		{entries: []entry{{0, 1}}}, {entries: []entry{{1, 1}}}, {entries: []entry{{2, 1}}},
	})
	s.add(column{-5, []entry{{0, 2}, {1, 4}, {2, 3}}})
	s.add(column{-4, []entry{{0, 3}, {1, 1}, {2, 4}}})
	s.add(column{-3, []entry{{0, 1}, {1, 2}, {2, 2}}})
	s.solve(100)
	if math.Abs(s.value()+13) > 1e-9 {
		t.Errorf("value %v, want -13", s.value())
	}
	for i, want := range []float64{-1, 0, -1} {
		if y := s.prices()[i]; math.Abs(y-want) > 1e-9 {
			t.Errorf("price of row %d is %v, want %v", i, y, want)
		}
	}
}

// TestFarley divides exactly: 7 of weight, at most 2 in a VM of 10 and 5 in one of 24,
// cost at least min(35, 33.6), which is 34 and with that step 34.
func TestFarley(t *testing.T) {
	p := &relaxation{offers: []offer{{price: 10}, {price: 24}}, step: 2}
	q := inequality{total: 7, most: []int64{2, 5}}
	if got, _ := p.combine([]inequality{q}); got != 34 {
		t.Errorf("%d, want 34", got)
	}
}

// cheapestPurchase tries all numbers of VMs of each offer.
func cheapestPurchase(p *relaxation, rows []inequality, m int, cost int64) int64 {
	if m == len(p.offers) {
		for _, row := range rows {
			if row.total > 0 {
				return math.MaxInt64
			}
		}
		return cost
	}
	best := int64(math.MaxInt64)
	for n := range int64(13) {
		rest := make([]inequality, len(rows))
		for r, row := range rows {
			rest[r] = inequality{total: row.total - n*row.most[m], most: row.most}
		}
		best = min(best, cheapestPurchase(p, rest, m+1, cost+n*p.offers[m].price))
	}
	return best
}

// checkPurchase returns the cost of VMs, which must satisfy all rows.
func checkPurchase(t *testing.T, p *relaxation, rows []inequality, models []int) (cost int64) {
	t.Helper()
	for _, m := range models {
		cost += p.offers[m].price
	}
	for _, row := range rows {
		has := int64(0)
		for _, m := range models {
			has += row.most[m]
		}
		if has < row.total {
			t.Fatalf("models %v have %d of %d: %+v", models, has, row.total, p.offers)
		}
	}
	return cost
}

func TestPurchase(t *testing.T) {
	rng := rand.New(rand.NewPCG(13, 14))
	cut := 0
	for range 500 {
		p := &relaxation{step: 1 + rng.Int64N(3)}
		for range 1 + rng.IntN(3) {
			p.offers = append(p.offers, offer{price: p.step * (2 + rng.Int64N(20)), model: len(p.offers)})
		}
		var rows []inequality
		for range 1 + rng.IntN(4) {
			row := inequality{total: 1 + rng.Int64N(12)}
			for range p.offers {
				row.most = append(row.most, rng.Int64N(7))
			}
			row.most[0]++
			rows = append(rows, row, row)
		}
		want := cheapestPurchase(p, rows, 0, 0)
		if got := p.newIntegerProgram(rows, 1_000_000).solve(0, 0); got != want {
			t.Fatalf("%d, want %d: %+v %+v", got, want, p.offers, rows)
		}
		if got := p.newIntegerProgram(rows, 1_000_000).solve(0, want-1); got != want-1 {
			t.Fatalf("%d, want the known %d: %+v %+v", got, want-1, p.offers, rows)
		}
		whole := p.newIntegerProgram(rows, 1_000_000)
		r, last := Result{WholeVMs: whole.solve(0, 0), program: whole}, int64(0)
		for models := range r.Purchases(2 * want) {
			if cost := checkPurchase(t, p, rows, models); cost <= last || cost >= 2*want || last == 0 && cost != want {
				t.Fatalf("a purchase for %d after %d, the cheapest for %d: %+v %+v", cost, last, want, p.offers, rows)
			} else {
				last = cost
			}
		}
		if last == 0 {
			t.Fatalf("no purchase: %+v %+v", p.offers, rows)
		}
		got := p.newIntegerProgram(rows, rng.IntN(120)).solve(0, 0)
		if got > want {
			t.Fatalf("cut short: %d, want at most %d: %+v %+v", got, want, p.offers, rows)
		}
		if got < want {
			cut++
		}
	}
	if cut < 50 {
		t.Errorf("only %d of 500 searches were cut short", cut)
	}
}
