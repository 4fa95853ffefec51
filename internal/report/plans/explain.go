package plans

import (
	"fmt"
	"strings"

	"unnest.io/unnest/internal/plan/cluster"
	"unnest.io/unnest/internal/plan/pack"
	"unnest.io/unnest/internal/plan/summary"
	"unnest.io/unnest/internal/report/document"
	"unnest.io/unnest/internal/report/record"
)

// Explain reports where the pods of one user are under kubernetes and best, and what
// each step from kubernetes to hostlo saves. The steps need pack.Options.Explain.
func Explain(s pack.Comparison, c cluster.Catalogue, bound summary.Dollars) document.Document {
	e := explanation{s, c}
	cost := func(o pack.Outcome) summary.Dollars { return summary.Dollars(o.Cost) }
	saved := func(o pack.Outcome) summary.Dollars { return cost(s.Kubernetes) - cost(o) }
	doc := document.Document{
		Command: "plan", Title: "Plans of user " + s.User.Name, Series: schemeSeries(summary.Schemes),
		Headlines: []string{
			fmt.Sprintf("%s, %s.", document.Plural(len(s.User.Pods), "pod"), document.Plural(summary.Containers(s.User), "container")),
			fmt.Sprintf("kubernetes costs %s $/h, hostlo %s $/h, best %s $/h. No plan can cost less than %s $/h.", cost(s.Kubernetes), cost(s.Hostlo), cost(s.Best), bound),
		},
	}
	for _, left := range s.Left {
		doc.Warnings = append(doc.Warnings, fmt.Sprintf("Left out: pod %s %s.", left.Pod, left.Reason))
	}
	doc.Groups = []document.Group{
		{ID: "kubernetes", Title: "kubernetes", Tables: []document.Table{e.vms("kubernetes-table", fmt.Sprintf("kubernetes: %s $/h", cost(s.Kubernetes)), s.Kubernetes.Plan)}},
		{ID: "hostlo", Title: "From kubernetes to hostlo", Tables: []document.Table{e.steps("hostlo-table", fmt.Sprintf("hostlo: %s $/h, saves %s", cost(s.Hostlo), saved(s.Hostlo)))}},
		{ID: "best", Title: "best", Tables: []document.Table{e.vms("best-table", fmt.Sprintf("best: %s $/h, saves %s; the bound is %s", cost(s.Best), saved(s.Best), bound), s.Best.Plan)}},
	}
	record.Data{}.Put(&doc) // JSON has the tables of the page
	return doc
}

// explanation names the VMs and containers of a study.
type explanation struct {
	study     pack.Comparison
	catalogue cluster.Catalogue
}

func (e explanation) vms(id, title string, p cluster.Plan) document.Table {
	t := document.Table{ID: id, Title: title, Columns: []document.Column{{Name: "VM", Header: true}, {Name: "model"}, {Name: "$/h", Numeric: true}, {Name: "used"}, {Name: "pods"}}}
	for _, vm := range p.VMs {
		model := e.catalogue[vm.Model]
		var used cluster.Resources
		var pods []string
		for _, part := range vm.Parts {
			used = used.Add(e.request(part))
		}
		for _, placed := range summary.ByPod(vm.Parts) {
			pods = append(pods, e.placedWords(placed))
		}
		t.Rows = append(t.Rows, document.TextRow(fmt.Sprintf("VM %d", vm.ID), model.Name, summary.Dollars(model.Price).String(),
			fmt.Sprintf("%s of %s", used, model.Size), strings.Join(pods, "; ")))
	}
	return t
}

// placedWords says which containers of a pod are on a VM.
func (e explanation) placedWords(placed summary.PodPart) string {
	pod := e.study.User.Pods[placed.Pod]
	if len(placed.Containers) == len(pod.Containers) {
		return fmt.Sprintf("%s (%s)", pod.Name, document.Plural(len(pod.Containers), "container"))
	}
	return fmt.Sprintf("%s (%d of %s: %s)", pod.Name, len(placed.Containers), document.Plural(len(pod.Containers), "container"), e.names(placed))
}

// steps lists the steps from kubernetes to hostlo.
func (e explanation) steps(id, title string) document.Table {
	t := document.Table{ID: id, Title: title, Columns: []document.Column{{Name: "step", Header: true}, {Name: "action"}, {Name: "saves, $/h", Numeric: true}, {Name: "moves"}}}
	for i, s := range e.study.Hostlo.Steps {
		t.Rows = append(t.Rows, document.TextRow(fmt.Sprint(i+1), e.action(s), summary.Dollars(s.Before-s.After).String(), strings.Join(e.moves(s.Moves), "; ")))
	}
	if len(t.Rows) == 0 {
		t.Rows = [][]document.Cell{{{Text: document.None, Missing: true}, {Text: "no move saves anything"}, {}, {}}}
	}
	return t
}

func (e explanation) action(s pack.Step) string {
	switch s.Action {
	case pack.ActDrop:
		return fmt.Sprintf("remove VM %d", s.VM)
	case pack.ActResize:
		return fmt.Sprintf("resize VM %d to %s", s.VM, e.catalogue[s.Model].Name)
	case pack.ActMove:
		return fmt.Sprintf("move to VM %d", s.VM)
	}
	return fmt.Sprintf("%s VM %d", s.Action, s.VM)
}

// moves lists moves, those of a pod between the same VMs as one.
func (e explanation) moves(moves []pack.Move) []string {
	var lines []string
	for i := 0; i < len(moves); {
		first, moved := moves[i], summary.PodPart{Pod: moves[i].Pod}
		for ; i < len(moves) && moves[i].Pod == first.Pod && moves[i].From == first.From && moves[i].To == first.To; i++ {
			if moves[i].Container >= 0 {
				moved.Containers = append(moved.Containers, moves[i].Container)
			}
		}
		lines = append(lines, fmt.Sprintf("pod %s: VM %d to VM %d: %s: %s", e.study.User.Pods[first.Pod].Name,
			first.From, first.To, document.Plural(len(moved.Containers), "container"), e.names(moved)))
	}
	return lines
}

func (e explanation) request(p cluster.Part) cluster.Resources {
	pod := e.study.User.Pods[p.Pod]
	if p.Container < 0 {
		return pod.Overhead
	}
	return pod.Containers[p.Container].Request
}

// names lists at most a dozen containers.
func (e explanation) names(p summary.PodPart) string {
	const most = 12
	var names []string
	for _, k := range p.Containers[:min(most, len(p.Containers))] {
		names = append(names, e.study.User.Pods[p.Pod].Containers[k].Name)
	}
	if rest := len(p.Containers) - most; rest > 0 {
		names = append(names, fmt.Sprintf("and %d more", rest))
	}
	return strings.Join(names, ", ")
}
