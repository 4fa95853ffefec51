package plan

import (
	"fmt"
	"slices"
	"strings"

	"unnest.io/unnest/internal/plan/cluster"
	"unnest.io/unnest/internal/plan/summary"
	"unnest.io/unnest/internal/plan/trace"
)

func newReading(r trace.Report) summary.Reading {
	reading := summary.Reading{
		Format: r.Format, Files: r.Files, Unread: len(r.Unread), Rows: r.Rows, Kept: r.Kept, Broken: r.Broken,
		Users: r.Users, Pods: r.Pods, Containers: r.Containers,
		Excluded: reasons(r.Excluded), Notes: reasons(r.Notes), Remarks: r.Remarks, Examples: []string{},
	}
	for _, b := range r.Examples {
		reading.Examples = append(reading.Examples, b.String())
	}
	return reading
}

func reasons(counts []trace.Count) []summary.Reason {
	list := []summary.Reason{}
	for _, c := range counts {
		list = append(list, summary.Reason{Why: c.Reason.String(), Rows: c.Rows})
	}
	return list
}

// reading says what was read of a trace whose users are not the pools of a cluster.
func (c *command) reading(r trace.Report, users []cluster.User) summary.Reading {
	reading := newReading(r)
	if len(r.Nodes) > 0 {
		reading.Remarks = append(reading.Remarks, "The nodes are not used: only a cluster as a whole, as with --owner cluster, is compared with its nodes.")
	}
	if r.Format == formatKubectl && len(r.Nodes) == 0 && c.opts.Owner == "" {
		reading.Remarks = append(reading.Remarks, fmt.Sprintf("The dump has no nodes, so it is not known what you pay, and the plans are for VMs of %s: add them with kubectl get %s -A -o json.", strings.Join(c.offer.Named().Names(), ", "), shortObjects))
	}
	if n := clashing(users, r.DaemonSets); n > 0 {
		reading.Remarks = append(reading.Remarks, fmt.Sprintf("Not honoured: %d pods may not share a VM with a DaemonSet, which is counted on every VM.", n))
	}
	if len(r.DaemonSets) > 0 && len(users) > 0 {
		reading.Remarks = append(reading.Remarks, c.daemonRemark(r.DaemonSets, users[0].PerVM))
	}
	return reading
}

// clashing counts the pods that may not share a VM with a DaemonSet.
func clashing(users []cluster.User, sets []cluster.DaemonSet) (n int) {
	for _, u := range users {
		for _, p := range u.Pods {
			if slices.ContainsFunc(sets, func(d cluster.DaemonSet) bool { return d.Rules.Clash(p.Rules) }) {
				n++
			}
		}
	}
	return n
}

// daemonRemark says what counts on every VM.
func (c *command) daemonRemark(sets []cluster.DaemonSet, v cluster.PerVM) string {
	var names []string
	for _, d := range sets {
		names = append(names, d.Name)
	}
	list := strings.Join(names, ", ")
	if c.setting.OwnDaemons {
		return "The catalogue's file replaces what the DaemonSets of the dump request: " + list + "."
	}
	return fmt.Sprintf("Counted on every VM, from the dump: %s (%s).", list, v)
}
