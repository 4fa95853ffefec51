package pack

import (
	"fmt"

	"unnest/internal/plan/cluster"
)

// Left is a pod that is not in a plan, and why.
type Left struct {
	Pod    string
	Reason string
}

// Fit returns the user with pods that the catalogue can hold, each on one VM, and
// what was left out. The paper does not say what it did with larger ones. Cut makes
// pods of them: containers in their order, as many as the largest model holds, named
// <pod>/0, <pod>/1 and so on, the overhead with the first; links between them are no
// longer links. Apart does so with one container each. What must not be split, or has a container that no model holds, is
// left out. Refuse makes it an error.
func Fit(u cluster.User, c cluster.Catalogue, o Oversize) (cluster.User, []Left, error) {
	if err := choose("oversize", &o, Drop, Cut, Apart, Refuse); err != nil {
		return cluster.User{}, nil, err
	}
	market := newMarket(c)
	fit := cluster.User{Name: u.Name}
	var left []Left
	for _, p := range u.Pods {
		switch {
		case market.cheapest(p.Request(), 1) >= 0:
			fit.Pods = append(fit.Pods, p)
		case o == Refuse:
			return cluster.User{}, nil, fmt.Errorf("user %s: pod %s needs %s: no model holds that; cut or drop it", u.Name, p.Name, p.Request())
		case o == Drop || p.Whole:
			left = append(left, Left{p.Name, fmt.Sprintf("needs %s: no model holds that", p.Request())})
		default:
			chunks, err := market.chunks(p, o == Apart)
			if err != nil {
				left = append(left, Left{p.Name, err.Error()})
				continue
			}
			fit.Pods = append(fit.Pods, chunks...)
		}
	}
	return fit, left, nil
}

// chunks cuts a pod into pods that one VM holds each, of one container each if they
// are to be apart.
func (m market) chunks(p cluster.Pod, apart bool) ([]cluster.Pod, error) {
	var chunks []cluster.Pod
	open := cluster.Pod{Overhead: p.Overhead}
	sum := p.Overhead
	for _, c := range p.Containers {
		if len(open.Containers) > 0 && (apart || m.cheapest(sum.Add(c.Request), 1) < 0) {
			chunks = append(chunks, open)
			open, sum = cluster.Pod{}, cluster.Resources{}
		}
		sum = sum.Add(c.Request)
		if m.cheapest(sum, 1) < 0 {
			return nil, fmt.Errorf("container %s needs %s: no model holds that", c.Name, sum)
		}
		open.Containers = append(open.Containers, c)
	}
	if m.cheapest(sum, 1) < 0 {
		return nil, fmt.Errorf("its overhead is %s: no model holds that", sum)
	}
	chunks = append(chunks, open)
	for i := range chunks {
		chunks[i].Name = fmt.Sprintf("%s/%d", p.Name, i)
	}
	relink(p.Links, chunks)
	return chunks, nil
}

// relink gives the chunks of a pod those of its links that are within one of them.
func relink(links []cluster.Link, chunks []cluster.Pod) {
	if len(links) == 0 {
		return
	}
	var chunk, first []int // of each container, and of each chunk
	for i, c := range chunks {
		first = append(first, len(chunk))
		for range c.Containers {
			chunk = append(chunk, i)
		}
	}
	for _, l := range links {
		if i := chunk[l.A]; i == chunk[l.B] {
			chunks[i].Links = append(chunks[i].Links, cluster.Link{A: l.A - first[i], B: l.B - first[i], Weight: l.Weight})
		}
	}
}
