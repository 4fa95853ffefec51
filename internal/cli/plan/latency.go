package plan

import (
	"unnest.io/unnest/internal/cli/document"
	"unnest.io/unnest/internal/measure/latency"
	"unnest.io/unnest/internal/plan/summary"
)

// read reads the ratio of latencies from the run directory.
func (r hostloRun) read() (summary.Latency, error) {
	input, notes, err := document.Load(r.dir)
	if err != nil {
		return summary.Latency{}, err
	}
	l := summary.Latency{Run: input.Run.ID, Directory: r.dir, State: string(input.Run.State), Accelerator: input.Run.Accelerator, Notes: notes}
	ratio, cases, err := latency.Compare(r.dir, input.Run, input.Samples, r.only)
	if err != nil {
		return l, err
	}
	l.Ratio = ratio
	for _, c := range cases {
		l.Cases = append(l.Cases, summary.CaseLatency{Case: c.Name, Unit: c.Unit, SameNode: c.SameNode, Hostlo: c.Hostlo, Ratio: c.Ratio, Low: c.Low, High: c.High, Blocks: c.Blocks})
	}
	return l, nil
}
