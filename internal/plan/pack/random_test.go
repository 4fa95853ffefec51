package pack

import (
	"fmt"

	"pgregory.net/rapid"

	"unnest.io/unnest/internal/plan/cluster"
)

// small resources, so that VMs and containers often fit exactly, and often do not.
func DrawResources(t *rapid.T, name string, least, most int64) cluster.Resources {
	return cluster.Resources{
		CPU:    rapid.Int64Range(least, most).Draw(t, name+" CPU"),
		Memory: rapid.Int64Range(least, most).Draw(t, name+" memory"),
	}
}

func DrawCatalogue(t *rapid.T, most int) cluster.Catalogue {
	var c cluster.Catalogue
	for i := range rapid.IntRange(1, most).Draw(t, "models") {
		c = append(c, cluster.Model{
			Name: fmt.Sprint("m", i), Size: DrawResources(t, "model", 4, 24),
			Price: rapid.Int64Range(1, 30).Draw(t, "price"), Pods: rapid.SampledFrom([]int{0, 0, 1, 3}).Draw(t, "most pods"),
		})
	}
	return c
}

// DrawUser returns a user of at most so many containers, some pods of which are
// larger than any model.
func DrawUser(t *rapid.T, containers int) cluster.User {
	limit := rapid.Int64Range(2, 4).Draw(t, "limit")
	u := cluster.User{Name: "u", Limits: []cluster.Limit{{Name: "disk", Most: limit, Legal: limit}}}
	left := rapid.IntRange(0, containers).Draw(t, "containers")
	for left > 0 {
		n := min(left, rapid.IntRange(1, 5).Draw(t, "in pod"))
		left -= n
		p := cluster.Pod{Name: fmt.Sprint("p", len(u.Pods)), Whole: rapid.IntRange(0, 5).Draw(t, "whole") == 0}
		if rapid.IntRange(0, 3).Draw(t, "is apart") == 0 {
			p.Rules = drawRules(t)
		}
		if rapid.IntRange(0, 3).Draw(t, "with overhead") == 0 {
			p.Overhead = DrawResources(t, "overhead", 0, 2)
		}
		for k := range n {
			p.Containers = append(p.Containers, cluster.Container{Name: fmt.Sprint("c", k), Request: DrawResources(t, "container", 0, 9)})
		}
		u.Pods = append(u.Pods, p)
	}
	return u
}

// DrawTrace returns a user of a trace, which has no limits.
func DrawTrace(t *rapid.T, containers int) cluster.User {
	u := DrawUser(t, containers)
	u.Limits = nil
	for _, p := range u.Pods {
		if p.Rules != nil {
			p.Rules.Takes = nil
		}
	}
	return u
}

// drawRules returns rules that are symmetric, of one side only, or about a limit.
func drawRules(t *rapid.T) *cluster.Rules {
	n := rapid.Int32Range(1, 2).Draw(t, "number")
	switch rapid.SampledFrom([]string{"apart", "has", "forbids", "takes"}).Draw(t, "rule") {
	case "has":
		return &cluster.Rules{Has: []int32{n}}
	case "forbids":
		return &cluster.Rules{Forbids: []int32{n}}
	case "takes":
		return &cluster.Rules{Takes: []cluster.Take{{Amount: int64(n)}}}
	}
	return cluster.Apart(n)
}

func DrawOptions(t *rapid.T, c cluster.Catalogue) Options {
	o := Options{
		Oversize:  rapid.SampledFrom([]Oversize{Drop, Cut, Apart}).Draw(t, "oversize"),
		Requested: rapid.SampledFrom([]Scale{OfVM, OfLargest}).Draw(t, "requested"),
		Wasted:    rapid.SampledFrom([]Scale{OfVM, OfLargest}).Draw(t, "wasted"),
		Moving:    rapid.SampledFrom([]Moving{MoveByVM, MoveByContainer}).Draw(t, "moving"),
		Emptying:  rapid.SampledFrom([]Emptying{MostWastedFirst, LeastWastedFirst, CheapestFirst, AsBought}).Draw(t, "emptying"),
		Rounds:    rapid.IntRange(0, 2).Draw(t, "rounds"),
		Explain:   rapid.Bool().Draw(t, "explain"),
	}
	if rapid.Bool().Draw(t, "hosts") {
		o.Host = newModelIndex(c).largest.Add(DrawResources(t, "host", 0, 20))
	}
	return o
}
