package pack

import (
	"math"
	"math/rand/v2"
	"testing"

	"pgregory.net/rapid"

	"unnest.io/unnest/internal/plan/cluster"
)

// A ranking finds what going through all bins finds.
func TestRankingAgainstScan(t *testing.T) {
	type entry struct {
		score float64
		free  cluster.Resources
		slots int32
	}
	rapid.Check(t, func(t *rapid.T) {
		var r ranking
		in := map[int]entry{}
		for range rapid.IntRange(1, 80).Draw(t, "operations") {
			b := rapid.IntRange(0, 20).Draw(t, "bin")
			if rapid.IntRange(0, 3).Draw(t, "remove") == 0 {
				r.remove(b)
				delete(in, b)
			} else {
				in[b] = entry{float64(rapid.IntRange(0, 4).Draw(t, "score")), DrawResources(t, "free", 0, 9), rapid.SampledFrom([]int32{0, 1, math.MaxInt32}).Draw(t, "slots")}
				r.set(b, in[b].score, in[b].free, in[b].slots)
			}
			req := DrawResources(t, "request", 0, 9)
			even := func(b int) bool { return b%2 == 0 }
			for _, ok := range []func(int) bool{nil, even} {
				want := -1
				for b := 20; b >= 0; b-- {
					e, there := in[b]
					if there && req.Fits(e.free) && e.slots > 0 && (ok == nil || ok(b)) && (want < 0 || e.score >= in[want].score) {
						want = b
					}
				}
				if got := r.first(req, ok); got != want {
					t.Fatalf("first for %v is %d, want %d of %v", req, got, want, in)
				}
			}
		}
	})
}

// A large ranking, which knows more of its subtrees, finds the same.
func TestLargeRankingAgainstScan(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	var ranked ranking
	in := map[int]cluster.Resources{}
	size := func() cluster.Resources {
		return cluster.Resources{CPU: r.Int64N(1 << r.IntN(34)), Memory: r.Int64N(1 << r.IntN(40))}
	}
	for op := range 6000 {
		b := r.IntN(2 * largeRanking)
		if op%5 == 0 {
			ranked.remove(b)
			delete(in, b)
		} else {
			in[b] = size()
			ranked.set(b, float64(b%97), in[b], 1)
		}
		if op%10 > 0 {
			continue
		}
		req, want := size(), -1
		for b, free := range in {
			if req.Fits(free) && (want < 0 || b%97 > want%97 || b%97 == want%97 && b < want) {
				want = b
			}
		}
		if got := ranked.first(req, nil); got != want {
			t.Fatalf("first for %v is %d, want %d", req, got, want)
		}
	}
	if ranked.cpu == nil {
		t.Error("the ranking is not large")
	}
}
