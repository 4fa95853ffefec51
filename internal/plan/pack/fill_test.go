package pack

import (
	"slices"
	"testing"

	"pgregory.net/rapid"

	"unnest.io/unnest/internal/plan/cluster"
)

// On the VMs of the cheapest packing, which all partitions are tried for, Fill finds a legal plan that
// costs as much. Whatever the VMs, it finds none that costs less.
func TestFill(t *testing.T) {
	type drawn struct {
		user   cluster.User
		models cluster.Catalogue
		others []int
	}
	draw := rapid.Custom(func(t *rapid.T) drawn {
		c := DrawCatalogue(t, 3)
		u, _, err := Fit(DrawUser(t, 9), c, Cut)
		if err != nil {
			t.Fatal(err)
		}
		return drawn{u, c, rapid.SliceOfN(rapid.IntRange(0, len(c)-1), 0, 8).Draw(t, "others")}
	})
	missed, others := 0, 0
	for seed := range 2000 {
		d := draw.Example(seed)
		p := newPacking(newModelIndex(d.models), newItems(d.user, nil), Options{})
		budget := 0
		loads := p.packExactly(p.all(), &budget)
		var models []int
		for _, l := range loads {
			models = append(models, l.model)
		}
		for _, on := range [][]int{models, d.others} {
			found, ok, err := Fill(d.user, d.models, Options{Effort: 10_000}, slices.Values([][]int{on}))
			if err != nil {
				t.Fatal(err)
			}
			best := slices.Equal(on, models)
			if !ok {
				if best {
					missed++
				}
				continue
			}
			if !best {
				others++
			}
			if err := Check(d.user, d.models, found.Plan, Options{}); err != nil || found.Cost < p.price(loads) || best && found.Cost > p.price(loads) || Cost(found.Plan, d.models) != found.Cost {
				t.Fatalf("seed %d: models %v cost %d, the cheapest %d: %v", seed, on, found.Cost, p.price(loads), err)
			}
		}
	}
	if missed > 2 || others < 300 {
		t.Errorf("%d of 2000 cheapest packings were not found, and %d plans on other VMs", missed, others)
	}
}
