package collocation

import (
	"strconv"

	"unnest.io/unnest/internal/measure/result"
	"unnest.io/unnest/internal/measure/stats"
)

// peaks finds the intensity of each configuration and size at which it answers most. It needs two
// intensities.
func (t *table) peaks() (all []Peak) {
	for _, conf := range t.run.Configurations {
		for _, size := range t.sizes() {
			var cells []*cell
			for _, c := range t.run.Cases {
				if one := t.cell(conf.Name, c); one != nil && c.Intensity > 0 && c.Size == size {
					cells = append(cells, one)
				}
			}
			if len(cells) > 1 {
				all = append(all, peakOf(conf.Name, size, cells))
			}
		}
	}
	return all
}

// sizes are those of the cases, each once, in their order.
func (t *table) sizes() (all []int) {
	seen := map[int]bool{}
	for _, c := range t.run.Cases {
		if !seen[c.Size] {
			seen[c.Size] = true
			all = append(all, c.Size)
		}
	}
	return all
}

// peakOf compares the cells of a configuration, one for each intensity. A block that lacks an
// intensity does not count.
func peakOf(configuration string, size int, cells []*cell) Peak {
	p := Peak{Configuration: configuration, Size: size}
	best, blocks := map[int]*cell{}, map[int]int{}
	for _, c := range cells {
		if m := spread(stats.Values(stats.ByBlock(c.aggregate))); m.Mean > p.Throughput.Mean {
			p.Intensity, p.Throughput = c.intensity, m
		}
		for _, o := range stats.ByBlock(c.aggregate) {
			blocks[o.Block]++
			if best[o.Block] == nil || o.Value > best[o.Block].at(o.Block) {
				best[o.Block] = c
			}
		}
	}
	var intensities []float64
	for block, c := range best {
		if blocks[block] == len(cells) {
			intensities = append(intensities, float64(c.intensity))
		}
	}
	p.Blocks = spread(intensities)
	return p
}

// sizeOf is the size of the document that the domain of a sample serves.
func sizeOf(s result.Sample, otherwise int) int {
	if n, err := strconv.Atoi(s.Tags[SizeTag]); err == nil {
		return n
	}
	return otherwise
}
