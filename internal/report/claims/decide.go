package claims

import (
	"unnest.io/unnest/internal/measure/stats"
)

// Answer is what follows for a claim.
type Answer string

// The answers.
const (
	Agrees      Answer = "agrees"
	Disagrees   Answer = "disagrees"
	NotDecided  Answer = "not decided"
	NotTestable Answer = "not testable here"
)

// Decision is what follows for a claim, and from what.
type Decision struct {
	Answer Answer `json:"answer"`
	Value  string `json:"value"` // inside or outside our interval; empty: the paper has none
	Order  string `json:"order"` // same, opposite or not known; empty: the paper has none
	Why    string `json:"why,omitempty"`
}

// decide compares what a paper claims with the interval of ours. A claim agrees if our interval excludes 1 on the
// paper's side, and disagrees if on the other side, or if it holds 1 but not the paper's value. If it holds both, it
// decides nothing. An equality agrees if the whole interval is within its margin, and disagrees if none of it is. A claim
// about one configuration agrees if the interval holds the paper's value.
//
// The order is enough to agree, because the machines differ; Value says whether the size agrees, too.
func decide(p published, ratio bool, ours stats.Interval) Decision {
	var d Decision
	holds := p.low <= ours.High && ours.Low <= p.high // false without a value
	if p.low > 0 {
		d.Value = map[bool]string{true: "inside", false: "outside"}[holds]
	}
	if p.margin > 0 {
		d.Answer = map[stats.Answer]Answer{stats.Yes: Agrees, stats.No: Disagrees, stats.Undecided: NotDecided}[stats.Within(ours, p.margin)]
		if d.Answer == NotDecided {
			d.Why = "the interval is neither within the margin nor outside of it"
		}
		return d
	}
	if !ratio || p.order == 0 {
		d.Answer = map[bool]Answer{true: Agrees, false: Disagrees}[holds]
		return d
	}
	order := 0
	if !ours.Contains(1) {
		order = map[bool]int{true: 1, false: -1}[ours.Low > 1]
	}
	d.Order = map[int]string{p.order: "same", -p.order: "opposite", 0: "not known"}[order]
	switch {
	case order == p.order:
		d.Answer = Agrees
	case order == -p.order, d.Value == "outside":
		d.Answer = Disagrees
	default:
		d.Answer, d.Why = NotDecided, "the interval holds 1"
	}
	return d
}
