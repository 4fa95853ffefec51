package pack

import (
	"fmt"
	"math"

	"unnest.io/unnest/internal/plan/cluster"
)

// Left is a pod that a plan leaves out, and why.
type Left struct {
	Pod    string
	Reason string
}

// Fit returns the user with pods that each fit on one VM, and the pods it left out. The paper
// does not say how it treats larger pods. Cut splits them into pods that each take as many
// containers, in their order, as the largest model holds. The new pods are named <pod>/0,
// <pod>/1 and so on; the first has the overhead; links between them are dropped. Apart does
// so with one container in each. Both leave out pods that must stay whole or have a container
// that no model holds. Refuse returns an error.
func Fit(u cluster.User, c cluster.Catalogue, o Oversize) (cluster.User, []Left, error) {
	if err := choose("oversize", &o, Drop, Cut, Apart, Refuse); err != nil {
		return cluster.User{}, nil, err
	}
	if err := addable(u, c); err != nil {
		return cluster.User{}, nil, err
	}
	models := newModelIndex(c)
	fit := u
	fit.Pods = nil
	var left []Left
	for _, p := range u.Pods {
		limit := p.Rules.Exceeds(u.Limits)
		switch {
		case limit != "" && o == Refuse:
			return cluster.User{}, nil, fmt.Errorf("user %s: pod %s takes more than a VM has: %s", u.Name, p.Name, limit)
		case limit != "":
			left = append(left, Left{p.Name, "takes more than a VM has: " + limit})
		case models.cheapest(p.Request(), 1) >= 0:
			fit.Pods = append(fit.Pods, p)
		case o == Refuse:
			return cluster.User{}, nil, fmt.Errorf("user %s: %w", u.Name, tooLarge(p))
		case o == Drop || p.Whole:
			left = append(left, Left{p.Name, fmt.Sprintf("needs %s: no model holds that", p.Request())})
		default:
			chunks, err := models.chunks(p, o == Apart)
			if err != nil {
				left = append(left, Left{p.Name, err.Error()})
				continue
			}
			fit.Pods = append(fit.Pods, chunks...)
		}
	}
	return fit, left, nil
}

// addable returns an error if sums of requests or prices could overflow, of which planners and
// bounds make many.
func addable(u cluster.User, c cluster.Catalogue) error {
	const most = math.MaxInt64 / 16
	var sum cluster.Resources
	var items, highest int64
	for _, p := range u.Pods {
		items += int64(max(1, len(p.Containers)))
		requests := []cluster.Resources{p.Overhead}
		for _, c := range p.Containers {
			requests = append(requests, c.Request)
		}
		for _, r := range requests {
			if r.CPU < 0 || r.Memory < 0 || r.CPU > most-sum.CPU || r.Memory > most-sum.Memory {
				return fmt.Errorf("user %s: its pods request more than %s together, which cannot be added up: split the input, or correct its requests",
					u.Name, cluster.Resources{CPU: most, Memory: most})
			}
			sum = sum.Add(r)
		}
	}
	for _, m := range c {
		highest = max(highest, m.Price)
	}
	if highest > 0 && items > most/highest {
		return fmt.Errorf("user %s: %d VMs of the highest price, %.4g $/h, cannot be added up: correct the prices of the catalogue", u.Name, items, float64(highest)/cluster.Dollar)
	}
	return nil
}

func tooLarge(p cluster.Pod) error {
	return fmt.Errorf("pod %s needs %s: no model holds that; cut or drop it", p.Name, p.Request())
}

// chunks cuts a pod into pods that each fit on one VM, with one container each if apart. They
// share the memory of its containers.
func (m modelIndex) chunks(p cluster.Pod, apart bool) ([]cluster.Pod, error) {
	var chunks []cluster.Pod
	open := cluster.Pod{Overhead: p.Overhead}
	sum, first := p.Overhead, 0
	for k, c := range p.Containers {
		if k > first && (apart || m.cheapest(sum.Add(c.Request), 1) < 0) {
			chunks = append(chunks, open)
			open, sum, first = cluster.Pod{}, cluster.Resources{}, k
		}
		sum = sum.Add(c.Request)
		if m.cheapest(sum, 1) < 0 {
			return nil, fmt.Errorf("container %s needs %s: no model holds that", c.Name, sum)
		}
		open.Containers = p.Containers[first : k+1 : k+1]
	}
	if m.cheapest(sum, 1) < 0 {
		return nil, fmt.Errorf("its overhead is %s: no model holds that", sum)
	}
	chunks = append(chunks, open)
	for i := range chunks {
		chunks[i].Rules = p.Rules
		chunks[i].Name = fmt.Sprintf("%s/%d", p.Name, i)
	}
	relink(p.Links, chunks)
	return chunks, nil
}

// relink copies the links of a pod to its chunks, without links between chunks.
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
