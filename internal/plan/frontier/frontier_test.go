package frontier

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"unnest.io/unnest/internal/plan/catalogue"
	"unnest.io/unnest/internal/plan/cluster"
	"unnest.io/unnest/internal/plan/pack"
)

// Three containers of 2, 2 and 2 vCPU: together they need an 8, with one apart a 4
// and a 2, or three of 2.
func TestFrontierByHand(t *testing.T) {
	tests := []struct {
		name  string
		links []cluster.Link
		pairs float64
		want  string
	}{
		{"links of 5 and 1: the weak one is cut", []cluster.Link{{A: 0, B: 1, Weight: 5}, {A: 1, B: 2, Weight: 1}}, 0, "336 cuts 1, 448 cuts 0"},
		{"every pair: the third is 2 apart from the others", nil, 1, "336 cuts 2, 448 cuts 0"},
		{"every pair and a link", []cluster.Link{{A: 0, B: 1, Weight: 5}}, 1, "336 cuts 2, 448 cuts 0"},
		{"no links", nil, 0, "336 cuts 0"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			p := of("a", 2, 2, 2)
			p.Links = tt.links
			choices, err := Find(cluster.User{Name: "u", Pods: []cluster.Pod{p}}, mustBuiltin(t, "bacou"), tt.pairs, pack.Options{})
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, ch := range choices {
				got = append(got, fmt.Sprintf("%d cuts %v", ch.Cost*1000/cluster.Dollar, ch.Cut))
			}
			if strings.Join(got, ", ") != tt.want {
				t.Errorf("choices %v, want %s", got, tt.want)
			}
		})
	}
}

func TestFrontierRefuses(t *testing.T) {
	c := mustBuiltin(t, "bacou")
	for _, bad := range []cluster.Link{{A: 0, B: 3, Weight: 1}, {A: -1, B: 0, Weight: 1}, {A: 0, B: 1, Weight: -1}, {A: 0, B: 1, Weight: math.NaN()}, {A: 0, B: 1, Weight: math.Inf(1)}} {
		p := of("a", 2, 2, 2)
		p.Links = []cluster.Link{bad}
		if _, err := Find(cluster.User{Name: "u", Pods: []cluster.Pod{p}}, c, 0, pack.Options{}); err == nil || !strings.Contains(err.Error(), "user u: link 0 of pod a") {
			t.Errorf("link %+v: error %v", bad, err)
		}
	}
	if _, err := Find(cluster.User{}, c, -1, pack.Options{}); err == nil {
		t.Error("pairs of a weight below 0 were taken")
	}
}

// of returns a pod of containers with so many vCPUs, and four times the GiB.
func of(name string, vcpus ...int64) cluster.Pod {
	p := cluster.Pod{Name: name}
	for k, n := range vcpus {
		p.Containers = append(p.Containers, cluster.Container{Name: fmt.Sprint("c", k), Request: cluster.Resources{CPU: n * cluster.VCPU, Memory: n << 32}})
	}
	return p
}

func mustBuiltin(t testing.TB, names ...string) cluster.Catalogue {
	t.Helper()
	c, err := catalogue.Builtin(names...)
	if err != nil {
		t.Fatal(err)
	}
	return c
}
