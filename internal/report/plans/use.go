package plans

import (
	"fmt"
	"strings"

	"unnest.io/unnest/internal/plan/summary"
	"unnest.io/unnest/internal/report/document"
)

// putUse adds what requests by use would save.
func putUse(d *document.Document, c summary.Plan) {
	u := *c.Use
	if c.Today == nil {
		d.Headlines = append(d.Headlines, fmt.Sprintf("Against kubernetes %s.", shareWords(u.Saves)))
	}
	d.Warnings = append(useWarnings(u), d.Warnings...)
	g := document.Group{ID: "use", Title: "Requests and use"}
	g.Add(shareTable(c), sizedTable(c), requestTable(u))
	d.Groups = append(d.Groups[:1:1], append([]document.Group{g}, d.Groups[1:]...)...)
	d.Methods = append(d.Methods, document.Method{Term: "right-sizing", Text: fmt.Sprintf("For each container of a workload: %.0f %% of its samples of CPU and its largest of memory, of the pod that needs most, and %d %% more; or what was recommended, if that is more.",
		100*u.Percentile, u.Headroom)})
}

// shareWords says what the measures save, one after the other.
func shareWords(saves []summary.Share) string {
	var words []string
	more := ""
	for _, s := range saves {
		switch {
		case s.Saves > 0:
			words = append(words, fmt.Sprintf("%s saves %s $/h%s", s.Measure, s.Saves, more))
			more = " more"
		case s.Saves < 0:
			words = append(words, fmt.Sprintf("%s costs %s $/h more", s.Measure, -s.Saves))
		}
	}
	if len(words) == 0 {
		return "no measure saves anything"
	}
	return strings.Join(words, ", ")
}

func useWarnings(u summary.Use) []string {
	var all []string
	if u.Samples == 1 {
		all = append(all, "Some use is a single measurement, which shows no peaks: name a range of Prometheus or recommendations.")
	}
	for _, w := range []struct {
		n    int
		text string
	}{
		{u.Containers - u.Known, "Without a use, so that their requests stay: %d of %d containers."},
		{u.Raised, "Right-sizing requests more for %d of %d containers, which use more than they request, or nearly as much."},
	} {
		if w.n > 0 {
			all = append(all, fmt.Sprintf(w.text, w.n, u.Containers))
		}
	}
	if u.Fixed > 0 {
		all = append(all, fmt.Sprintf("Not right-sized: %s with requests of the pod as a whole.", document.Plural(u.Fixed, "pod")))
	}
	if u.Kept > 0 {
		all = append(all, fmt.Sprintf("Not right-sized: the pods of %d pools or users, of which one is too large for every VM, or would be.", u.Kept))
	}
	if u.Unmatched > 0 {
		all = append(all, fmt.Sprintf("Use of %s was read that no planned pod has, such as DaemonSets, which keep their requests.", document.Plural(u.Unmatched, "container")))
	}
	return all
}

func shareTable(c summary.Plan) document.Table {
	t := document.Table{ID: "measures", Title: "What each measure saves after those before it", Columns: document.NumericColumns("measure", "saves, $/h", "cost then, $/h")}
	at := c.Cost.Kubernetes
	if c.Today != nil {
		at = c.Today.Now
	}
	for _, s := range c.Use.Saves {
		at -= s.Saves
		t.Rows = append(t.Rows, document.TextRow(s.Measure, s.Saves.String(), at.String()))
	}
	t.Notes = []string{"A measure alone saves more or less than here: see the next table. Only these savings add up."}
	return t
}

// sizedTable has the cost of whole and split pods, with the requests as they are and by use.
func sizedTable(c summary.Plan) document.Table {
	t := document.Table{ID: "sized", Title: "Cost by requests, $/h", Columns: document.NumericColumns("requests", "vCPU", "GiB", "whole pods", "split pods", "bound")}
	packed, split, bound := c.Cost.Whole, c.Cost.Best, c.Bound
	var sized summary.SizedCosts
	for _, u := range c.PerUser {
		if u.Sized != nil {
			sized.Whole, sized.Best, sized.Bound = sized.Whole+u.Sized.Whole, sized.Best+u.Sized.Best, sized.Bound+u.Sized.Bound
		}
	}
	if today := c.Today; today != nil {
		packed, split, bound = today.Packed, today.Split, today.Bound
		sized.Whole, sized.Best, sized.Bound, _ = today.Could()
	}
	row := func(name string, a summary.Amount, whole, best, low summary.Dollars) {
		t.Rows = append(t.Rows, document.TextRow(name, significant(a.VCPU), significant(a.GiB), whole.String(), best.String(), low.String()))
	}
	row("as they are", c.Use.Requested, packed, split, bound)
	row("by use", c.Use.Sized, sized.Whole, sized.Best, sized.Bound)
	t.Notes = []string{"Use from " + strings.Join(c.Use.Sources, ", ") + "."}
	return t
}

// shownRequests is how many changes of requests are printed. JSON has all.
const shownRequests = 20

func requestTable(u summary.Use) document.Table {
	t := document.Table{ID: "requests", Title: "Requests to change, those that free most first", Columns: []document.Column{{Name: "pods", Numeric: true}, {Name: "vCPU", Numeric: true}, {Name: "by use", Numeric: true},
		{Name: "MiB", Numeric: true}, {Name: "by use", Numeric: true}, {Name: "container"}}}
	for _, c := range u.Changes[:min(len(u.Changes), shownRequests)] {
		t.Rows = append(t.Rows, document.TextRow(fmt.Sprint(c.Pods), significant(c.From.VCPU), significant(c.To.VCPU), fmt.Sprintf("%.0f", c.From.GiB*1024), fmt.Sprintf("%.0f", c.To.GiB*1024),
			fmt.Sprintf("%s of %s/%s (%s)", c.Container, c.Namespace, c.Workload, c.Kind)))
	}
	if rest := len(u.Changes) - shownRequests; rest > 0 {
		t.Notes = []string{fmt.Sprintf("%s more: --json and --write have all.", document.Plural(rest, "change"))}
	}
	return t
}
