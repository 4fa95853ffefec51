package noise

import (
	"math/rand/v2"
	"slices"
	"strconv"

	"unnest.io/unnest/internal/measure/result"
)

// tagRepeats is the tag of a sample whose execution was disturbed, and measured again that often.
const tagRepeats = "repeats"

// Repeats returns how often the execution of s was measured again, as Select has found.
func Repeats(s result.Sample) int {
	n, _ := strconv.Atoi(s.Tags[tagRepeats])
	return n
}

// chance is the p-value up to which repeats count as caused by the configuration. It is larger than
// for a finding, because a missed cause biases ratios, and a wrongly seen one only widens intervals.
const chance = 0.2

// Select returns the samples that count of a journal, one measurement of each execution with a result.
// They have the tag repeats. That is the last measurement, unless how often an execution was repeated
// depends on its configuration: then it is the first, with its Discarded 1. A configuration that
// itself disturbs the machine, or suffers more from what disturbs it, would otherwise be represented by
// its calm executions only, and its ratio to another would be biased.
//
// Published runs before 2026-11-28 kept no discarded measurements; their samples are returned as they are.
func Select(j result.Journal) []result.Sample {
	if len(j.Discarded) == 0 {
		return j.Samples
	}
	repeats := map[result.Execution]int{}
	for _, s := range j.Discarded {
		repeats[s.Execution()] = max(repeats[s.Execution()], s.Discarded)
	}
	samples := slices.Clone(j.Samples)
	if byConfiguration(j.Samples, repeats) <= chance {
		done := map[result.Execution]bool{}
		for _, s := range j.Samples {
			done[s.Execution()] = true
		}
		samples = slices.DeleteFunc(samples, func(s result.Sample) bool { return repeats[s.Execution()] > 0 })
		for _, s := range j.Discarded {
			if s.Discarded == 1 && done[s.Execution()] {
				samples = append(samples, s)
			}
		}
	}
	for i, s := range samples {
		if n := repeats[s.Execution()]; n > 0 {
			samples[i].Tag(map[string]string{tagRepeats: strconv.Itoa(n)})
		}
	}
	return samples
}

// permutations is the number of permutations of byConfiguration.
const permutations = 2000

// byConfiguration returns the p-value of a permutation test of the hypothesis that repeats do not
// depend on the configuration. It permutes the configurations within a case and block. The statistic
// is the sum of squares of the repeats of each configuration. It is the same for the same samples.
func byConfiguration(samples []result.Sample, repeats map[result.Execution]int) float64 {
	type cell struct {
		name  string
		block int
	}
	cells, index, seen := map[cell][]result.Execution{}, map[string]int{}, map[result.Execution]bool{}
	var order []cell
	for _, s := range samples {
		x := s.Execution()
		if seen[x] {
			continue
		}
		seen[x] = true
		if _, ok := index[x.Configuration]; !ok {
			index[x.Configuration] = len(index)
		}
		c := cell{x.Case, x.Block}
		if len(cells[c]) == 0 {
			order = append(order, c)
		}
		cells[c] = append(cells[c], x)
	}
	sums := make([]int, len(index))
	statistic := func(shuffle func([]int)) (sum int) {
		clear(sums)
		for _, c := range order {
			counts := make([]int, len(cells[c]))
			for i, x := range cells[c] {
				counts[i] = repeats[x]
			}
			shuffle(counts)
			for i, x := range cells[c] {
				sums[index[x.Configuration]] += counts[i]
			}
		}
		for _, n := range sums {
			sum += n * n
		}
		return sum
	}
	observed := statistic(func([]int) {})
	r := rand.New(rand.NewPCG(1, uint64(len(samples))))
	extreme := 1
	for range permutations {
		if statistic(func(n []int) { r.Shuffle(len(n), func(i, j int) { n[i], n[j] = n[j], n[i] }) }) >= observed {
			extreme++
		}
	}
	return float64(extreme) / (1 + permutations)
}
