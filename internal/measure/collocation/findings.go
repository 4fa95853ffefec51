package collocation

import (
	"cmp"
	"math"
	"slices"
	"strings"

	"unnest.io/unnest/internal/measure/result"
	"unnest.io/unnest/internal/measure/stats"
)

// Findings are what the samples of a run say about its domains. Every number is over the blocks
// of the run; every ratio is within blocks, as in all comparisons.
type Findings struct {
	Alone []Ratio // a domain alone, over the host itself under the same case
	Idle  []Ratio // the active domain next to idle neighbours, over the same one alone
	Pairs []Pair  // active domains next to each other
	Peaks []Peak  // of the aggregate throughput over the intensities
}

// Load is a case in a configuration.
type Load struct {
	Configuration string
	Case          string
	Size          int // bytes of the document, where a domain has no other one
	Intensity     int // percent of the full load; 0: the highest throughput was looked for
}

// Ratio is the aggregate throughput under a load over that of a reference.
type Ratio struct {
	Load
	Reference string // configuration, or configurations joined by +
	Effect    stats.Effect
}

// Pair is what several active domains answer next to each other.
type Pair struct {
	Load
	Identical bool    // domains of one type with one document
	OfSum     *Ratio  // over the sum of what the domains answer alone; nil: that was not measured
	OfSingle  *Ratio  // over the domain that answers most alone
	OfSame    []Ratio // over pairs of one of its types with itself
	// Fairness compares what the domains answer: their throughput, or where they differ its
	// share of that alone.
	Jain      Spread
	Deviation Spread // the largest one, as a fraction
	Least     *Kept  // the domain that keeps least; nil: what the domains answer alone was not measured
}

// Kept is what a domain answers next to others, as a fraction of what it answers alone.
type Kept struct {
	Domain string
	Spread
}

// Spread is a mean over blocks with its interval, which is undefined below two blocks.
type Spread struct {
	N        int
	Mean     float64
	Interval stats.Interval
}

// Peak is the intensity at which a configuration answers most.
type Peak struct {
	Configuration string
	Size          int
	Compared      int                 // intensities
	Intensity     int                 // with the highest mean throughput
	Throughput    Spread              // there
	Values        []stats.Observation // there
	Blocks        Spread              // the intensity with the highest throughput of each block
}

// Find computes the findings of the samples of a run.
func Find(run result.Run, samples []result.Sample) Findings {
	t := newTable(run, samples)
	var f Findings
	for _, c := range run.Cases {
		for _, conf := range run.Configurations {
			cell := t.cell(conf.Name, c)
			if cell == nil {
				continue
			}
			switch {
			case len(cell.active) > 1:
				f.Pairs = append(f.Pairs, t.pair(cell))
			case len(cell.all) > 1:
				f.Idle = t.appendRatio(f.Idle, cell, t.alone(cell.active[0], cell.intensity, cell.sizes[cell.active[0]]))
			case typeOf(cell.all[0]) != hostType:
				f.Alone = t.appendRatio(f.Alone, cell, t.alone(hostType+"1", cell.intensity, cell.Size))
			}
		}
	}
	f.Peaks = t.peaks()
	return f
}

// PartLoad returns the highest intensity of the cases, in percent, or 0 if a case has the full load.
func PartLoad(cases []result.Case) (highest int) {
	for _, c := range cases {
		if c.Intensity == 0 || c.Intensity >= 100 {
			return 0
		}
		highest = max(highest, c.Intensity)
	}
	return highest
}

const hostType = "host"

func typeOf(domain string) string { return strings.TrimRight(domain, "0123456789") }

// table has the samples of a run by load.
type table struct {
	run   result.Run
	cells map[[2]string]*cell // by configuration and case
}

// cell is a load with what was measured under it.
type cell struct {
	Load
	all, active []string // names of domains, sorted
	sizes       map[string]int
	intensity   int
	aggregate   []stats.Observation
	server      map[string]map[int]float64 // domain -> block -> answers/s
}

func newTable(run result.Run, samples []result.Sample) *table {
	t := &table{run: run, cells: map[[2]string]*cell{}}
	cases := map[string]result.Case{}
	for _, c := range run.Cases {
		cases[c.Name] = c
	}
	for _, s := range samples {
		key := [2]string{s.Configuration, s.Case}
		one := t.cells[key]
		if one == nil {
			c := cases[s.Case]
			one = &cell{
				Load:  Load{s.Configuration, s.Case, c.Size, c.Intensity},
				sizes: map[string]int{}, intensity: c.Intensity, server: map[string]map[int]float64{},
			}
			t.cells[key] = one
		}
		one.add(s)
	}
	for key, one := range t.cells {
		if len(one.all) == 0 || len(one.active) == 0 || len(one.aggregate) == 0 {
			delete(t.cells, key)
		}
	}
	return t
}

func (c *cell) add(s result.Sample) {
	domain := s.Tags[DomainTag]
	if domain == "" {
		if s.Metric == Aggregate {
			c.aggregate = append(c.aggregate, stats.Observation{Block: s.Block, Value: s.Value})
		}
		return
	}
	c.all = insert(c.all, domain)
	if s.Tags[ActiveTag] != "true" {
		return
	}
	c.active = insert(c.active, domain)
	if s.Metric != Server {
		return
	}
	if c.server[domain] == nil {
		c.server[domain] = map[int]float64{}
	}
	c.server[domain][s.Block] = s.Value
	c.sizes[domain] = sizeOf(s, c.Size)
}

// insert adds a name to a sorted list that lacks it.
func insert(names []string, name string) []string {
	i, found := slices.BinarySearch(names, name)
	if found {
		return names
	}
	return slices.Insert(names, i, name)
}

func (t *table) cell(configuration string, c result.Case) *cell {
	return t.cells[[2]string{configuration, c.Name}]
}

// alone returns the cell of a configuration that has a domain of the type only, under an intensity
// with documents of a size; nil: it was not measured.
func (t *table) alone(domain string, intensity, size int) *cell {
	for _, c := range t.run.Cases {
		if c.Intensity != intensity {
			continue
		}
		for _, conf := range t.run.Configurations {
			one := t.cell(conf.Name, c)
			if one != nil && len(one.all) == 1 && typeOf(one.all[0]) == typeOf(domain) && one.sizes[one.all[0]] == size {
				return one
			}
		}
	}
	return nil
}

// appendRatio appends the ratio of one cell to another, if it can be computed.
func (t *table) appendRatio(all []Ratio, of, to *cell) []Ratio {
	if to == nil {
		return all
	}
	if r := t.ratio(of, to.Configuration, to.aggregate); r != nil {
		all = append(all, *r)
	}
	return all
}

// ratio is that of the aggregate throughput of a cell to the observations of a reference.
func (t *table) ratio(of *cell, reference string, to []stats.Observation) *Ratio {
	e, err := stats.Compare(of.aggregate, to, t.run.Interleaved)
	if err != nil {
		return nil
	}
	return &Ratio{of.Load, reference, e}
}

func (t *table) pair(c *cell) Pair {
	p := Pair{Load: c.Load, Identical: true}
	var alone []*cell
	for _, d := range c.active {
		p.Identical = p.Identical && typeOf(d) == typeOf(c.active[0]) && c.sizes[d] == c.sizes[c.active[0]]
		if one := t.alone(d, c.intensity, c.sizes[d]); one != nil {
			alone = append(alone, one)
		}
	}
	if len(alone) == len(c.active) {
		p.OfSum = t.ratio(c, joined(alone), sumOf(alone))
		best := slices.MaxFunc(alone, func(a, b *cell) int { return cmp.Compare(meanOf(a.aggregate), meanOf(b.aggregate)) })
		p.OfSingle = t.ratio(c, best.Configuration, best.aggregate)
	} else {
		alone = nil
	}
	if !p.Identical {
		p.OfSame = t.ofSame(c)
	}
	p.Jain, p.Deviation = c.fairness(p.Identical, alone)
	p.Least = c.least(alone)
	return p
}

// joined names the configurations of cells.
func joined(cells []*cell) string {
	var names []string
	for _, c := range cells {
		names = append(names, c.Configuration)
	}
	return strings.Join(names, "+")
}

// sumOf adds up the aggregate throughput of cells within the blocks that all have.
func sumOf(cells []*cell) (sum []stats.Observation) {
	blocks, values := map[int]int{}, map[int]float64{}
	for _, c := range cells {
		for _, o := range stats.ByBlock(c.aggregate) {
			blocks[o.Block]++
			values[o.Block] += o.Value
		}
	}
	for block, n := range blocks {
		if n == len(cells) {
			sum = append(sum, stats.Observation{Block: block, Value: values[block]})
		}
	}
	slices.SortFunc(sum, func(a, b stats.Observation) int { return a.Block - b.Block })
	return sum
}

// ofSame compares a pair of different domains with the pairs of one of its types with itself, under
// the same case.
func (t *table) ofSame(c *cell) (all []Ratio) {
	for _, conf := range t.run.Configurations {
		other := t.cells[[2]string{conf.Name, c.Case}]
		if other == nil || len(other.active) != len(c.active) || len(other.all) != len(c.all) || other == c {
			continue
		}
		kind := typeOf(other.active[0])
		same := !slices.ContainsFunc(other.active, func(d string) bool { return typeOf(d) != kind || other.sizes[d] != c.Size })
		if same && slices.ContainsFunc(c.active, func(d string) bool { return typeOf(d) == kind }) {
			all = t.appendRatio(all, c, other)
		}
	}
	return all
}

// fairness compares what the active domains answer in each block. Domains that differ are compared
// by their share of what they answer alone; without that there is no comparison.
func (c *cell) fairness(identical bool, alone []*cell) (jain, deviation Spread) {
	if !identical && alone == nil {
		return jain, deviation
	}
	var jains, deviations []float64
	for _, o := range stats.ByBlock(c.aggregate) {
		var shares []float64
		for i, d := range c.active {
			share, ok := c.server[d][o.Block]
			if ok && !identical {
				share /= alone[i].at(o.Block)
			}
			if ok && !math.IsNaN(share) && !math.IsInf(share, 0) {
				shares = append(shares, share)
			}
		}
		if j := stats.Jain(shares); len(shares) == len(c.active) && !math.IsNaN(j) {
			jains, deviations = append(jains, j), append(deviations, stats.LargestDeviation(shares))
		}
	}
	return spread(jains).within(1/float64(len(c.active)), 1), spread(deviations).within(0, 1)
}

// least is the active domain that keeps least of what it answers alone, on average over the
// blocks.
func (c *cell) least(alone []*cell) (least *Kept) {
	for i, one := range alone {
		var shares []float64
		for block, served := range c.server[c.active[i]] {
			if share := served / one.at(block); !math.IsNaN(share) && !math.IsInf(share, 0) {
				shares = append(shares, share)
			}
		}
		if s := spread(shares).within(0, math.Inf(1)); s.N > 0 && (least == nil || s.Mean < least.Mean) {
			least = &Kept{c.active[i], s}
		}
	}
	return least
}

// at is the aggregate throughput in a block, NaN if there is none.
func (c *cell) at(block int) float64 {
	for _, o := range c.aggregate {
		if o.Block == block {
			return o.Value
		}
	}
	return math.NaN()
}

// within cuts off from the interval what the quantity cannot be. The interval keeps its level, because the
// true value is not there.
func (s Spread) within(low, high float64) Spread {
	if !s.Interval.Defined() {
		return s
	}
	s.Interval.Low, s.Interval.High = max(s.Interval.Low, low), min(s.Interval.High, high)
	return s
}

func meanOf(obs []stats.Observation) float64 { return spread(stats.Values(obs)).Mean }

func spread(xs []float64) Spread {
	s, err := stats.Summarize(xs)
	if err != nil {
		return Spread{}
	}
	interval, _ := stats.MeanInterval(xs, stats.DefaultConfidence) // undefined below two values
	return Spread{s.N, s.Mean, interval}
}
