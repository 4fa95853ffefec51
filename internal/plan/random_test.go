package plan

import (
	"fmt"

	"pgregory.net/rapid"
)

// small resources, so that VMs and containers often fit exactly, and often do not.
func drawResources(t *rapid.T, name string, least, most int64) Resources {
	return Resources{
		rapid.Int64Range(least, most).Draw(t, name+" CPU"),
		rapid.Int64Range(least, most).Draw(t, name+" memory"),
	}
}

func drawCatalogue(t *rapid.T, most int) Catalogue {
	var c Catalogue
	for i := range rapid.IntRange(1, most).Draw(t, "models") {
		c = append(c, Model{
			Name: fmt.Sprint("m", i), Size: drawResources(t, "model", 4, 24),
			Price: rapid.Int64Range(1, 30).Draw(t, "price"), Pods: rapid.SampledFrom([]int{0, 0, 1, 3}).Draw(t, "most pods"),
		})
	}
	return c
}

// drawUser returns a user of at most so many containers, some pods of which are
// larger than any model.
func drawUser(t *rapid.T, containers int) User {
	u := User{Name: "u"}
	left := rapid.IntRange(0, containers).Draw(t, "containers")
	for left > 0 {
		n := min(left, rapid.IntRange(1, 5).Draw(t, "in pod"))
		left -= n
		p := Pod{Name: fmt.Sprint("p", len(u.Pods)), Whole: rapid.IntRange(0, 5).Draw(t, "whole") == 0}
		if rapid.IntRange(0, 3).Draw(t, "with overhead") == 0 {
			p.Overhead = drawResources(t, "overhead", 0, 2)
		}
		for k := range n {
			p.Containers = append(p.Containers, Container{fmt.Sprint("c", k), drawResources(t, "container", 0, 9)})
		}
		u.Pods = append(u.Pods, p)
	}
	return u
}

func drawOptions(t *rapid.T, c Catalogue) Options {
	o := Options{
		Oversize:  rapid.SampledFrom([]Oversize{Drop, Cut, Apart}).Draw(t, "oversize"),
		Requested: rapid.SampledFrom([]Scale{OfVM, OfLargest}).Draw(t, "requested"),
		Wasted:    rapid.SampledFrom([]Scale{OfVM, OfLargest}).Draw(t, "wasted"),
		Moving:    rapid.SampledFrom([]Moving{MoveByVM, MoveByContainer}).Draw(t, "moving"),
		Emptying:  rapid.SampledFrom([]Emptying{MostWastedFirst, LeastWastedFirst, CheapestFirst, AsBought}).Draw(t, "emptying"),
		Rounds:    rapid.IntRange(0, 2).Draw(t, "rounds"),
		Keep:      rapid.Bool().Draw(t, "keep"),
		Explain:   rapid.Bool().Draw(t, "explain"),
	}
	if rapid.Bool().Draw(t, "hosts") {
		o.Host = newMarket(c).largest.Add(drawResources(t, "host", 0, 20))
	}
	return o
}
