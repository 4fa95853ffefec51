package summary

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestDollars(t *testing.T) {
	tests := []struct {
		d    Dollars
		text string
	}{{0, "0"}, {1, "0.000000001"}, {112_000_000, "0.112"}, {-2_500_000_000, "-2.5"}, {9_000_000_000_000_000_001, "9000000000.000000001"}}
	for _, tt := range tests {
		text, err := json.Marshal(tt.d)
		var back Dollars
		if err != nil || string(text) != tt.text || json.Unmarshal(text, &back) != nil || back != tt.d {
			t.Errorf("%d: got %s, %v, back %d, want %s", tt.d, text, err, back, tt.text)
		}
	}
	for _, bad := range []string{`"x"`, "0.0000000001", "1e30"} {
		var d Dollars
		if json.Unmarshal([]byte(bad), &d) == nil {
			t.Errorf("%s was read as %d", bad, d)
		}
	}
}

// A saving of exactly 5 % is not more than 5 %.
func TestBinOf(t *testing.T) {
	for _, tt := range []struct {
		saved, of Dollars
		want      int
	}{{1, 100, 1}, {5, 100, 1}, {6, 100, 2}, {10, 100, 2}, {11, 100, 3}, {100, 100, 20}, {1, 9e18, 1}} {
		if got := binOf(tt.saved, tt.of); got != tt.want {
			t.Errorf("binOf(%d, %d): got %d, want %d", tt.saved, tt.of, got, tt.want)
		}
	}
}

// Choices that are the best at no price are passed over, and steps ascend in price.
func TestSteps(t *testing.T) {
	c := Choices{Choices: []Choice{{1e9, 100, 3}, {2e9, 90, 2}, {8e9, 30, 1}, {10e9, 10, 1}, {20e9, 0, 0}}}
	want := []step{{7, 10e9, 10, 1}, {7, 9e9, 90, .1}}
	if diff := cmp.Diff(want, c.steps(7), cmp.AllowUnexported(step{})); diff != "" {
		t.Errorf("steps (-want +got):\n%s", diff)
	}
}

// Steps that disruption budgets forbid today come after those that they allow, but before splits.
func TestOrderOfSteps(t *testing.T) {
	pool := func(name string, now, packed, split Dollars, moves int, blocked ...string) PoolCost {
		return PoolCost{Name: name, Now: now, Moves: moves, Evictions: Evictions{Rounds: moves, Blocked: blocked}, PoolPlan: PoolPlan{Packed: packed, Split: split}}
	}
	today := Today{Pools: []PoolCost{pool("forbidden", 100, 20, 20, 1, "shop/db"), pool("slow", 100, 60, 50, 40), pool("quick", 100, 90, 90, 2)}}
	today.Add()
	var got []string
	for _, s := range today.Steps {
		got = append(got, s.Action+" "+s.Pool)
	}
	if diff := cmp.Diff([]string{"pack quick", "pack slow", "pack forbidden", "split slow"}, got); diff != "" {
		t.Errorf("steps (-want +got):\n%s", diff)
	}
	if s := today.Steps[2]; s.Cost != 170 || s.Rounds != 1 || s.Blocked[0] != "shop/db" {
		t.Errorf("the last pack is %+v", s)
	}
}
