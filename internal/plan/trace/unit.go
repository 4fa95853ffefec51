package trace

import (
	"bytes"
	"cmp"
	"errors"
	"math"
	"strings"

	"unnest.io/unnest/internal/plan/cluster"
)

// unit is what the numbers of a column of requests are in.
type unit struct {
	of       int64    // units of the planner; 0: of the largest machine
	shift    int      // 2: hundredths of that
	valid    bool     // a number outside 0 to the largest machine marks an invalid request
	suffixes []suffix // of numbers
	want     string   // instead of a text that is not a number
}

// suffix multiplies the unit by 10^shift × factor.
type suffix struct {
	name   string
	shift  int
	factor int64
}

var (
	cpuUnits = map[string]unit{
		"vcpu": {of: cluster.VCPU}, "thousandths": {of: cluster.VCPU, shift: 3}, "hundredths": {of: cluster.VCPU, shift: 2}, "largest": {},
		"quantity": {of: cluster.VCPU, suffixes: []suffix{{"m", -3, 1}}, want: "want vCPUs, such as 2 or 500m"},
	}
	memoryUnits = map[string]unit{
		"bytes": {of: 1}, "KiB": {of: 1 << 10}, "MiB": {of: 1 << 20}, "GiB": {of: 1 << 30}, "largest": {}, "percent": {shift: 2, valid: true},
		"quantity": {of: 1, suffixes: memorySuffixes, want: "want bytes or 4Gi, 512Mi"},
	}
	memorySuffixes = []suffix{
		{"Ki", 0, 1 << 10}, {"Mi", 0, 1 << 20}, {"Gi", 0, 1 << 30}, {"Ti", 0, 1 << 40}, {"Pi", 0, 1 << 50},
		{"KiB", 0, 1 << 10}, {"MiB", 0, 1 << 20}, {"GiB", 0, 1 << 30}, {"TiB", 0, 1 << 40}, {"PiB", 0, 1 << 50},
		{"k", 3, 1}, {"M", 6, 1}, {"G", 9, 1}, {"T", 12, 1}, {"P", 15, 1},
	}
)

type quantityColumn struct {
	ref
	column string
	unit
}

func (r resolver) quantity(from amountFile, units map[string]unit, byDefault string) quantityColumn {
	return quantityColumn{r.ref(from.column), from.column, units[cmp.Or(from.unit, byDefault)]}
}

// amount reads a request. The largest machine has so much.
func (q quantityColumn) amount(cells [][]byte, largest int64) (amount, error) {
	text, of, shift := cells[q.ref], cmp.Or(q.of, largest), q.shift
	for _, s := range q.suffixes {
		if digits, has := strings.CutSuffix(string(text), s.name); has && digits != "" {
			text, of, shift = []byte(digits), of*s.factor, -s.shift
			break
		}
	}
	a, err := amountOf(q.column, text, of, shift)
	switch {
	case errors.Is(err, errNotDecimal) && q.want != "":
		return a, inColumn(q.column, cells[q.ref], errors.New(q.want))
	case q.valid && err == nil && (a.why == Negative || a.value > largest):
		a.why = Invalid
	}
	return a, err
}

// request reads what a row requests.
func (t *table) request(cells [][]byte, o *Options) (request, error) {
	cpu, err := t.cpu.amount(cells, o.Largest.CPU)
	if err != nil {
		return request{}, err
	}
	memory, err := t.memory.amount(cells, o.Largest.Memory)
	if memory.why == Invalid {
		return request{why: Invalid}, err
	}
	return requested(cpu, memory), err
}

// some reports whether a number is above 0.
func some(text []byte) bool {
	n, err := parseNumber(text)
	return err == nil && n.why == kept && n.mantissa > 0
}

// read reads a time in ticks, rounded to a tick; 0, false for none.
func (c clock) read(column string, text []byte) (t int64, is bool, err error) {
	n, err := parseNumber(text)
	if err != nil {
		return 0, false, inColumn(column, text, err)
	}
	if text = bytes.TrimSpace(text); len(text) == 0 || bytes.EqualFold(text, []byte("null")) || n.why == NotANumber {
		return 0, false, nil
	}
	if t, err = n.times(c.ticks); err != nil {
		return 0, false, inColumn(column, text, err)
	}
	if n.why == Negative {
		return -t, true, nil
	}
	return t, true, nil
}

// moment reads the start or the end of a row. Without one it returns the least or the greatest
// time.
func (c clock) moment(m moment, cells [][]byte, o *Options) (int64, error) {
	if m.ref < 0 {
		return math.MinInt64, nil
	}
	t, is, err := c.read(m.column, cells[m.ref])
	switch {
	case err != nil:
		return 0, err
	case !is && m.empty == "":
		return 0, inColumn(m.column, cells[m.ref], errors.New("want a whole number"))
	case !is && m.empty == "before":
		return math.MinInt64, nil
	case !is, t == 0 && m.zero == "after":
		return math.MaxInt64, nil
	}
	o.saw(t, c.tick)
	return t, nil
}
