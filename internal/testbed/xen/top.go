package xen

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
)

// TopArgs is the command that prints what all domains have of the processors each second, until it
// is killed. ParseTop reads its output.
func TopArgs() []string { return []string{"xentop", "--batch", "--full-name", "--delay=1"} }

// Tables counts the tables that have begun in the output of xentop.
func Tables(printed string) int { return strings.Count(printed, " NAME ") }

// Sample is what xentop says about one interval.
type Sample struct {
	Percent map[string]float64 // of one processor, by the name of the domain
	Seconds map[string]float64 // of processors since the domain was created, likewise
}

// ParseTop reads the output of xentop in batch mode, and leaves out what it cannot know: the first
// table, which has no interval before it, and a last one that is not complete.
func ParseTop(printed string) (all []Sample, err error) {
	complete := printed[:strings.LastIndexByte(printed, '\n')+1]
	var tables []Sample
	var columns []string
	for line := range strings.Lines(complete) {
		fields := strings.Fields(line)
		switch {
		case len(fields) == 0:
		case fields[0] == "NAME":
			columns = fields
			tables = append(tables, Sample{map[string]float64{}, map[string]float64{}})
		case len(tables) == 0:
			return nil, fmt.Errorf("read xentop: want a table that begins with NAME, got %q", line)
		default:
			if err := tables[len(tables)-1].add(columns, fields); err != nil {
				return nil, fmt.Errorf("read xentop: line %q: %w", strings.TrimSpace(line), err)
			}
		}
	}
	if len(tables) > 1 { // the last one may lack domains that the first ones have
		last, before := tables[len(tables)-1], tables[len(tables)-2]
		if len(last.Percent) < len(before.Percent) {
			tables = tables[:len(tables)-1]
		}
	}
	if len(tables) < 2 {
		return nil, fmt.Errorf("read xentop: want at least two tables, got %d", len(tables))
	}
	return tables[1:], nil
}

// add adds the domain of a line. Columns after CPU(%) may have values of two words.
func (s Sample) add(columns, fields []string) error {
	for name, to := range map[string]map[string]float64{"CPU(sec)": s.Seconds, "CPU(%)": s.Percent} {
		i := slices.Index(columns, name)
		if i < 0 || i >= len(fields) {
			return fmt.Errorf("no column %s", name)
		}
		value, err := strconv.ParseFloat(fields[i], 64)
		if err != nil {
			return err
		}
		if !(value >= 0) || math.IsInf(value, 1) {
			return fmt.Errorf("%s is %v: want a number from 0", name, value)
		}
		to[fields[0]] = value
	}
	return nil
}
