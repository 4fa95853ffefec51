package report

import (
	"cmp"
	"fmt"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"unnest/internal/measure/result"
)

// none is printed where there is no value.
const none = "–"

// number prints v with four significant digits, without decimals above 1000 and when v
// is whole.
func number(v Number) string {
	if float64(v) == math.Trunc(float64(v)) {
		return decimal(v, 0)
	}
	return decimal(v, decimals(v))
}

// decimals returns how many decimals of v are worth printing.
func decimals(v Number) int {
	if !v.Defined() || v == 0 {
		return 0
	}
	return min(9, max(0, 3-int(math.Floor(math.Log10(math.Abs(float64(v)))))))
}

func decimal(v Number, places int) string {
	if !v.Defined() {
		return none
	}
	return strconv.FormatFloat(float64(v), 'f', places, 64)
}

// ratio prints a ratio with two decimals, below one tenth with three significant
// digits.
func ratio(v Number) string { return ratioTo(v, 2) }

// ratioTo prints a ratio with the decimals given, below one tenth with three significant
// digits.
func ratioTo(v Number, places int) string {
	if v.Defined() && math.Abs(float64(v)) < 0.1 && v != 0 {
		places = 2 - int(math.Floor(math.Log10(math.Abs(float64(v)))))
	}
	return decimal(v, min(places, 9))
}

// percent prints a positive fraction as a percentage.
func percent(v float64) string {
	if v = 100 * v; v < 9.95 {
		return strconv.FormatFloat(v, 'g', 2, 64) + " %"
	}
	return strconv.FormatFloat(v, 'f', 0, 64) + " %"
}

// level prints a confidence with the digits that matter: "95 %", "99.17 %".
func level(confidence Number) string {
	return strconv.FormatFloat(math.Round(1e4*float64(confidence))/100, 'f', -1, 64) + " %"
}

// pValue prints p as "p = 0.013".
func pValue(p Number) string {
	switch {
	case !p.Defined():
		return "p undefined"
	case p < 0.001:
		return "p < 0.001"
	case p < 0.1:
		return "p = " + strconv.FormatFloat(float64(p), 'g', 2, 64)
	}
	return "p = " + strconv.FormatFloat(float64(p), 'f', 2, 64)
}

// bracket prints an interval.
func bracket(i Interval, places int) string {
	if !i.Low.Defined() {
		return none
	}
	return "[" + decimal(i.Low, places) + ", " + decimal(i.High, places) + "]"
}

// change words a ratio: "18 % lower", "2.1 times".
func change(r Number) string {
	switch {
	case r >= 2:
		return ratio(r) + " times"
	case r >= 1:
		return percent(float64(r)-1) + " higher"
	}
	return percent(1-float64(r)) + " lower"
}

type cpuMetric struct{ metric, column, quantity string }

// cpuParts are the metrics of CPU time (Bacou et al. 2019, §5.1) with what each
// measures, in the order of the stacked bars.
var cpuParts = []cpuMetric{
	{"host_usr", "usr", "user time on the host"},
	{"host_sys", "sys", "kernel time on the host"},
	{"host_soft", "soft", "software interrupt time on the host"},
	{"host_guest", "guest", "time spent in the guest"},
	{"guest_usr", "usr", "user time in the guest"},
	{"guest_sys", "sys", "kernel time in the guest"},
	{"guest_soft", "soft", "software interrupt time in the guest"},
	{"vm_usr", "usr", "user time of the VM's process"},
	{"vm_sys", "sys", "kernel time of the VM's process"},
	{"vm_guest", "guest", "time that the VM's process spent in the guest"},
	{"server_usr", "usr", "user time of the server"},
	{"server_sys", "sys", "kernel time of the server"},
	{"node_usr", "usr", "user time on the nodes"},
	{"node_sys", "sys", "kernel time on the nodes"},
	{"node_soft", "soft", "software interrupt time on the nodes"},
}

// cpuSides are the prefixes of cpuParts that share a table, with what they are the time of.
var cpuSides = [][]cpuSide{
	{{"host", "on the host"}, {"guest", "in the guest"}, {"node", "on the nodes"}},
	{{"vm", "of the VM's process on the host"}, {"server", "of the server's process"}},
}

type cpuSide struct{ name, where string }

// isCPU reports whether a metric is one of cpuParts.
func isCPU(metric string) bool {
	return slices.ContainsFunc(cpuParts, func(p cpuMetric) bool { return p.metric == metric })
}

// startTimes are the metrics of the start of a container (Bacou et al. 2019, §5.2.4)
// with what each measures.
var startTimes = map[string]string{"start": "start-up time", "add": "time of CNI ADD", "del": "time of CNI DEL"}

// quantity names what a metric measures: "latency" for latency_mean.
func quantity(metric string) string {
	if q, ok := startTimes[metric]; ok {
		return q
	}
	if i := slices.IndexFunc(cpuParts, func(p cpuMetric) bool { return p.metric == metric }); i >= 0 {
		return cpuParts[i].quantity
	}
	words := strings.Fields(strings.ReplaceAll(strings.TrimSuffix(strings.TrimSuffix(metric, "_mean"), "_avg"), "_", " "))
	for i := range words {
		if words[i] == "cpu" {
			words[i] = "CPU"
		}
	}
	return strings.Join(words, " ")
}

// better spells an order out.
func better(o result.Order) string {
	if o == result.HIB {
		return "higher is better"
	}
	return "lower is better"
}

// shown is a unit as a report prints it: "µs/op" for us/op.
func shown(unit string) string {
	if rest, micro := strings.CutPrefix(unit, "us"); micro && (rest == "" || rest[0] == '/') {
		return "µs" + rest
	}
	return unit
}

// milliseconds are the units of time.
var milliseconds = map[string]float64{"ns": 1e-6, "us": 1e-3, "µs": 1e-3, "ms": 1, "s": 1e3, "sec": 1e3}

// noBreak is a no-break space.
const noBreak = "\u00a0"

var numberSpaces = regexp.MustCompile(`(\d) (%|B\b|times|repetitions?)|\b([pn]) ([<=]) (\d)|\[-?[\d.]+, -?[\d.]+\]`)

// glue keeps a number with its unit, a p with its value, and an interval on one line.
func glue(s string) string {
	return numberSpaces.ReplaceAllStringFunc(s, func(m string) string { return strings.ReplaceAll(m, " ", noBreak) })
}

// plural prints a count with its noun.
func plural(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// list joins names as "a, b and c".
func list(names []string) string {
	if len(names) < 2 {
		return strings.Join(names, "")
	}
	last := len(names) - 1
	return strings.Join(names[:last], ", ") + " and " + names[last]
}

// sizeLabel names a message size.
func sizeLabel(size int) string { return strconv.Itoa(size) + " B" }

// caseTitle is the title of a case, or its name.
func caseTitle(c result.Case) string { return cmp.Or(c.Title, c.Name) }

// caseLabel names a case within its group.
func caseLabel(c result.Case) string {
	if c.Size > 0 {
		return sizeLabel(c.Size)
	}
	return caseTitle(c)
}

// groupTitle names a group after its first case, without the size.
func groupTitle(c result.Case) string {
	if c.Size == 0 {
		return cmp.Or(c.Title, groupKey(c))
	}
	return cmp.Or(strings.TrimSuffix(c.Title, ", "+sizeLabel(c.Size)), groupKey(c))
}

// groupKey is the group of a case, or its name if it has none.
func groupKey(c result.Case) string { return cmp.Or(c.Group, c.Name) }

var notAnchor = regexp.MustCompile(`[^a-zA-Z0-9]+`)

// anchor makes an HTML identifier of parts.
func anchor(parts ...string) string {
	return strings.Trim(notAnchor.ReplaceAllString(strings.ToLower(strings.Join(parts, "-")), "-"), "-")
}
