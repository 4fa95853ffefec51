package plan

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// Three containers of 2, 2 and 2 vCPU: together they need an 8, with one apart a 4
// and a 2, or three of 2.
func TestFrontierByHand(t *testing.T) {
	tests := []struct {
		name  string
		links []Link
		pairs float64
		want  string
	}{
		{"links of 5 and 1: the weak one is cut", []Link{{0, 1, 5}, {1, 2, 1}}, 0, "336 cuts 1, 448 cuts 0"},
		{"every pair: the third is 2 apart from the others", nil, 1, "336 cuts 2, 448 cuts 0"},
		{"every pair and a link", []Link{{0, 1, 5}}, 1, "336 cuts 2, 448 cuts 0"},
		{"no links", nil, 0, "336 cuts 0"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			p := of("a", 2, 2, 2)
			p.Links = tt.links
			choices, err := Frontier(User{"u", []Pod{p}}, mustBuiltin(t, "bacou"), tt.pairs, Options{})
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, ch := range choices {
				got = append(got, fmt.Sprintf("%d cuts %v", ch.Cost*1000/Dollar, ch.Cut))
			}
			if strings.Join(got, ", ") != tt.want {
				t.Errorf("choices %v, want %s", got, tt.want)
			}
		})
	}
}

func TestFrontierRefuses(t *testing.T) {
	c := mustBuiltin(t, "bacou")
	for _, bad := range []Link{{0, 3, 1}, {-1, 0, 1}, {0, 1, -1}, {0, 1, math.NaN()}, {0, 1, math.Inf(1)}} {
		p := of("a", 2, 2, 2)
		p.Links = []Link{bad}
		if _, err := Frontier(User{"u", []Pod{p}}, c, 0, Options{}); err == nil || !strings.Contains(err.Error(), "user u: link 0 of pod a") {
			t.Errorf("link %+v: error %v", bad, err)
		}
	}
	if _, err := Frontier(User{}, c, -1, Options{}); err == nil {
		t.Error("pairs of a weight below 0 were taken")
	}
}

// A pod that is cut keeps the links within each piece.
func TestFitKeepsLinks(t *testing.T) {
	p := of("a", 50, 40, 50, 40)
	p.Links = []Link{{0, 1, 1}, {1, 2, 2}, {3, 2, 3}}
	u, _, err := Fit(User{"u", []Pod{p}}, mustBuiltin(t, "bacou"), Cut)
	if err != nil || len(u.Pods) != 2 {
		t.Fatalf("got %+v, %v, want two pieces", u, err)
	}
	if diff := cmp.Diff([][]Link{{{0, 1, 1}}, {{1, 0, 3}}}, [][]Link{u.Pods[0].Links, u.Pods[1].Links}); diff != "" {
		t.Errorf("links (-want +got):\n%s", diff)
	}
}
