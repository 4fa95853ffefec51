package plan

import (
	"fmt"
	"io"
	"strings"

	"unnest/internal/plan/cluster"
	"unnest/internal/plan/pack"
)

// explanation is the text about one user.
type explanation struct {
	text      strings.Builder
	study     pack.Comparison
	catalogue cluster.Catalogue
}

// explainStudy prints which pods are where in the plans of a user, and what each step
// from one to the other saved.
func explainStudy(w io.Writer, s pack.Comparison, c cluster.Catalogue, bound dollars) error {
	e := &explanation{study: s, catalogue: c}
	fmt.Fprintf(&e.text, "User %s: %s, %s\n", s.User.Name, plural(len(s.User.Pods), "pod"), plural(containers(s.User), "container"))
	for _, left := range s.Left {
		fmt.Fprintf(&e.text, "  left out: pod %s %s\n", left.Pod, left.Reason)
	}
	fmt.Fprintf(&e.text, "\nkubernetes: %s $/h\n", dollars(s.Kubernetes.Cost))
	e.plan(s.Kubernetes.Plan)
	fmt.Fprintf(&e.text, "\nhostlo: %s $/h, saves %s\n", dollars(s.Hostlo.Cost), dollars(s.Kubernetes.Cost-s.Hostlo.Cost))
	e.steps(s.Hostlo.Steps)
	fmt.Fprintf(&e.text, "\nbest: %s $/h, saves %s; the bound is %s\n", dollars(s.Best.Cost), dollars(s.Kubernetes.Cost-s.Best.Cost), bound)
	e.plan(s.Best.Plan)
	_, err := io.WriteString(w, e.text.String())
	return err
}

func (e *explanation) plan(p cluster.Plan) {
	split := onSeveral(p)
	for _, vm := range p.VMs {
		model := e.catalogue[vm.Model]
		var used cluster.Resources
		for _, part := range vm.Parts {
			used = used.Add(e.request(part))
		}
		fmt.Fprintf(&e.text, "  VM %d: %s, %s $/h, %s of %s\n", vm.ID, model.Name, dollars(model.Price), used, model.Size)
		for _, pod := range byPod(vm.Parts) {
			p := e.study.User.Pods[pod.index]
			fmt.Fprintf(&e.text, "    pod %s: ", p.Name)
			if split[pod.index] {
				fmt.Fprintf(&e.text, "%d of %s: %s\n", len(pod.containers), plural(len(p.Containers), "container"), e.names(pod))
			} else {
				fmt.Fprintf(&e.text, "%s\n", plural(len(p.Containers), "container"))
			}
		}
	}
}

// steps tells the steps that saved something, or moved something.
func (e *explanation) steps(steps []pack.Step) {
	if len(steps) == 0 {
		fmt.Fprintf(&e.text, "  no move saves anything\n")
	}
	for i, s := range steps {
		fmt.Fprintf(&e.text, "  %d. %s: saves %s $/h\n", i+1, e.action(s), dollars(s.Before-s.After))
		for _, m := range e.moves(s.Moves) {
			fmt.Fprintf(&e.text, "       %s\n", m)
		}
	}
}

func (e *explanation) action(s pack.Step) string {
	switch s.Action {
	case pack.ActDrop:
		return fmt.Sprintf("VM %d dropped", s.VM)
	case pack.ActResize:
		return fmt.Sprintf("VM %d becomes %s", s.VM, e.catalogue[s.Model].Name)
	case pack.ActMove:
		return fmt.Sprintf("moved to VM %d", s.VM)
	}
	return fmt.Sprintf("%s VM %d", s.Action, s.VM)
}

// moves words moves, those of a pod between the same VMs in one line.
func (e *explanation) moves(moves []pack.Move) []string {
	var lines []string
	for i := 0; i < len(moves); {
		first, pod := moves[i], onePod{index: moves[i].Pod}
		for ; i < len(moves) && moves[i].Pod == first.Pod && moves[i].From == first.From && moves[i].To == first.To; i++ {
			if moves[i].Container >= 0 {
				pod.containers = append(pod.containers, moves[i].Container)
			}
		}
		lines = append(lines, fmt.Sprintf("pod %s: VM %d to VM %d: %s: %s", e.study.User.Pods[first.Pod].Name,
			first.From, first.To, plural(len(pod.containers), "container"), e.names(pod)))
	}
	return lines
}

func (e *explanation) request(p cluster.Part) cluster.Resources {
	pod := e.study.User.Pods[p.Pod]
	if p.Container < 0 {
		return pod.Overhead
	}
	return pod.Containers[p.Container].Request
}

// names lists containers, not more than fit a line or two.
func (e *explanation) names(p onePod) string {
	const most = 12
	var names []string
	for i, k := range p.containers {
		if i == most {
			names = append(names, fmt.Sprintf("and %d more", len(p.containers)-most))
			break
		}
		names = append(names, e.study.User.Pods[p.index].Containers[k].Name)
	}
	return strings.Join(names, ", ")
}

// onePod is the containers of a pod that are in one place.
type onePod struct {
	index      int
	containers []int
}

// byPod groups parts, which are sorted, by pod.
func byPod(parts []cluster.Part) []onePod {
	var pods []onePod
	for _, part := range parts {
		if len(pods) == 0 || pods[len(pods)-1].index != part.Pod {
			pods = append(pods, onePod{index: part.Pod})
		}
		if part.Container >= 0 {
			last := &pods[len(pods)-1]
			last.containers = append(last.containers, part.Container)
		}
	}
	return pods
}

// onSeveral returns the pods that have containers on several VMs.
func onSeveral(p cluster.Plan) map[int]bool {
	first, several := map[int]int{}, map[int]bool{}
	for i, vm := range p.VMs {
		for _, part := range vm.Parts {
			if at, seen := first[part.Pod]; seen && at != i {
				several[part.Pod] = true
			} else {
				first[part.Pod] = i
			}
		}
	}
	return several
}
