package paths

import (
	"fmt"
	"slices"
	"strings"

	"unnest.io/unnest/internal/report/document"
)

// PacketDiagram pictures what a packet crosses.
func PacketDiagram(all []Path, baselines []string) document.Diagram {
	return diagramOf("What a packet crosses", "only because of nesting", all, baselines)
}

// LayerDiagram pictures what is under a benchmark.
func LayerDiagram(all []Path, baselines []string) document.Diagram {
	return diagramOf("What is under the benchmark", "added by a container or a nested VM", all, baselines)
}

// diagramOf pictures paths. marked says what nested hops are.
func diagramOf(title, marked string, all []Path, baselines []string) document.Diagram {
	if len(all) == 0 {
		return document.Diagram{}
	}
	d, spent := document.Diagram{Title: title}, false
	for _, p := range all {
		if slices.ContainsFunc(p.Hops, func(h Hop) bool { return h.Place == inNest }) {
			d.Marked = marked
		}
		spent = spent || len(p.Spent) > 0
		d.Rows = append(d.Rows, document.DiagramRow{Series: p.Configuration, Value: p.Value, Badge: p.Badge, Frames: p.frames()})
	}
	if len(baselines) > 0 {
		d.Notes = append(d.Notes, fmt.Sprintf("Verdicts against %s.", baselines[0]))
	}
	if spent {
		d.Notes = append(d.Notes, "On machines: CPU time per unit of work, mean.")
	}
	return d
}

// frames splits p by machine. What was spent on a machine is said once.
func (p Path) frames() []document.Frame {
	var all []document.Frame
	for _, h := range p.Hops {
		if len(all) == 0 || all[len(all)-1].Name != string(h.Machine) {
			all = append(all, document.Frame{Name: string(h.Machine), Note: p.spentOn(h.Machine, all)})
		}
		last := &all[len(all)-1]
		last.Boxes = append(last.Boxes, document.Box{Name: h.Name, Kind: string(h.Place)})
	}
	return all
}

// spentOn says what was spent on a machine, unless one of before is of it.
func (p Path) spentOn(m machine, before []document.Frame) string {
	if slices.ContainsFunc(before, func(f document.Frame) bool { return f.Name == string(m) }) {
		return ""
	}
	var parts []string
	for _, s := range p.Spent {
		if s.Machine == m || m == vm1 && s.Machine == podsVMs {
			parts = append(parts, fmt.Sprintf("%s %s", s.What, s.amount()))
		}
	}
	text := strings.Join(parts, ", ")
	if m == vm1 && len(parts) > 0 {
		text = "both VMs: " + text
	}
	return text
}
