package papers

import (
	"math"
	"slices"
	"strconv"
	"testing"

	"github.com/google/go-cmp/cmp"

	"unnest.io/unnest/internal/measure/result"
)

func TestNumber(t *testing.T) {
	for _, tt := range []struct {
		n           Number
		float, unit float64
	}{{"7.06", 7.06, 0.01}, {"4427", 4427, 1}, {"+0.528", 0.528, 0.001}, {"-4.31", -4.31, 0.01}} {
		if tt.n.Float() != tt.float || math.Abs(tt.n.Unit()-tt.unit) > 1e-15 {
			t.Errorf("%q: got %v, unit %v; want %v, %v", tt.n, tt.n.Float(), tt.n.Unit(), tt.float, tt.unit)
		}
	}
	if x := Number("").Float(); !math.IsNaN(x) {
		t.Errorf("no number: got %v", x)
	}
}

// Every suite of Lubomski et al., Table 2, is there in the configurations that
// were measured.
func TestTotals(t *testing.T) {
	got := map[string]int{}
	for _, total := range Totals() {
		got[total.Suite+total.Execution]++
		if math.IsNaN(total.Total.Float()) || total.Table < 3 || total.Table > 7 || total.Configuration == "" {
			t.Errorf("incomplete: %+v", total)
		}
	}
	want := map[string]int{
		"CPU": 4, "multicore": 4, "java": 4, "memory": 4, "network": 6, "disk": 6,
		"applicationlocal": 6, "applicationremote": 10,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("totals per suite differ (-want +got):\n%s", diff)
	}
}

// The printed totals of Table 4 are the sums of its scores: the check that the
// table was copied right.
func TestNetworkScores(t *testing.T) {
	sums := map[string]float64{}
	for _, s := range NetworkScores() {
		if s.Table != 4 || s.Value != "" || s.Order != "" {
			t.Errorf("not of Table 4: %+v", s)
		}
		sums[s.Configuration] += s.Score.Float()
	}
	// 0.88 + 0.86 is 1.74, printed 1.72.
	misprints := map[string]bool{"vm.aufs.host": true}
	checked := 0
	for _, total := range Totals() {
		if total.Suite != "network" {
			continue
		}
		checked++
		same := math.Abs(sums[total.Configuration]-total.Total.Float()) < 1e-9
		if same == misprints[total.Configuration] {
			t.Errorf("%s: scores sum up to %v, printed %s, known misprint %v", total.Configuration,
				sums[total.Configuration], total.Total, misprints[total.Configuration])
		}
	}
	if checked != 6 {
		t.Errorf("checked %d totals, want 6", checked)
	}
}

func TestDiskScores(t *testing.T) {
	tables, orders, cells := map[int]int{}, map[result.Order]int{}, map[string]bool{}
	for _, s := range DiskScores() {
		tables[s.Table]++
		orders[s.Order]++
		cells[s.Case+" "+s.Configuration] = true
		if !(s.Value.Float() > 0 && s.Score.Float() > 0 && s.Score.Float() <= 1) || s.Unit == "" {
			t.Errorf("incomplete: %+v", s)
		}
	}
	if diff := cmp.Diff(map[int]int{5: 54, 6: 54}, tables); diff != "" {
		t.Errorf("cells per table differ (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(map[result.Order]int{result.HIB: 90, result.LIB: 18}, orders); diff != "" {
		t.Errorf("cells per order differ (-want +got):\n%s", diff)
	}
	if len(cells) != 108 {
		t.Errorf("%d different cells, want 18 cases in 6 configurations", len(cells))
	}
}

func TestSysbench(t *testing.T) {
	rows := Sysbench()
	if len(rows) != 60 {
		t.Fatalf("%d rows, want 60: 10 tables, 2 architectures, 3 levels", len(rows))
	}
	tests := []string{"cpu", "threads", "memory (write)", "memory (read)", "oltp"}
	for i, r := range rows {
		if r.Table != 5+i/6 || r.Test != tests[i/12] || r.Overcommitted != (r.Table%2 == 1) {
			t.Errorf("row %d is of table %d, test %s, over-committed %v", i, r.Table, r.Test, r.Overcommitted)
		}
		for _, m := range []Mean{r.Throughput, r.Response} {
			if (m.Change == "") != (r.Level == "L0") || m.Mean == "" || m.StdErr == "" || m.RelStdErr == "" {
				t.Errorf("incomplete: %+v", r)
			}
		}
	}
	want := SysbenchRow{
		Table: 14, Test: "oltp", Architecture: "x86_64", Level: "L2",
		Throughput: Mean{Mean: "67.297", Change: "-34.49", StdErr: "0.205", RelStdErr: "0.305"},
		Response:   Mean{Mean: "29.713", Change: "+1.75", StdErr: "0.0899", RelStdErr: "0.303"},
	}
	if diff := cmp.Diff(want, rows[59]); diff != "" {
		t.Errorf("last row differs (-want +got):\n%s", diff)
	}
}

// The factors that the evaluation of Hostlo is compared with (§5.3.2), and what the
// whole table must be like.
func TestRatios(t *testing.T) {
	want := map[string]float64{
		"TCP_STREAM SameNode 5.3 times lower": 0.18868,
		"TCP_STREAM NAT 17.9 % higher":        1.179,
		"TCP_STREAM Overlay 27 % lower":       0.73,
		"UDP_RR NAT 87.3 % lower":             0.127,
		"UDP_RR Overlay 89.8 % lower":         0.102,
	}
	seen := map[string]bool{}
	for _, r := range Ratios() {
		if r.Section == "" || r.Benchmark == "" || r.Metric == "" || r.Configuration == "" || !(r.Factor() > 0) {
			t.Errorf("incomplete: %+v", r)
		}
		if (r.Baseline == "") != (r.Metric == "deviation") {
			t.Errorf("a deviation alone is of its own mean: %+v", r)
		}
		line := r.Benchmark + " " + r.Baseline + " " + r.String()
		if seen[r.Configuration+line] {
			t.Errorf("twice: %+v", r)
		}
		seen[r.Configuration+line] = true
		if factor, ok := want[line]; ok {
			delete(want, line)
			if r.Size != 1024 || r.Configuration != "Hostlo" || math.Abs(r.Factor()-factor) > 1e-5 {
				t.Errorf("got %+v with factor %v, want %v at 1024 B", r, r.Factor(), factor)
			}
		}
	}
	if len(want) > 0 {
		t.Errorf("missing: %v", want)
	}
	for r, text := range map[Ratio]string{
		{Value: "2", Form: "times", Extent: "about"}:         "about 2 times",
		{Value: "92", Form: "% lower", Extent: "best"}:       "92 % lower at best",
		{Value: "27.9", Form: "% of the mean"}:               "27.9 % of the mean",
		{Value: "6.1", Form: "times lower", Extent: "worst"}: "6.1 times lower at worst",
	} {
		if r.String() != text {
			t.Errorf("got %q, want %q", r.String(), text)
		}
	}
}

// Where the study of collocated domains prints two rates and the change between them, these agree, except for known misprints.
func TestCollocatedRates(t *testing.T) {
	rates := map[string]float64{}
	for _, c := range Collocations() {
		if c.Form == "responses/s" {
			rates[c.Configuration] = c.Value.Float()
		}
	}
	misprints := map[string]string{"HVM-PVM over PVM-PVM": "21, is 19", "HVM-CON over HVM-PVM": "-18, is -15", "PVM-CON over HVM-PVM": "-18, is -15"}
	for _, c := range Collocations() {
		if c.Form != "%" || rates[c.Configuration] == 0 || rates[c.Baseline] == 0 {
			continue
		}
		name := c.Configuration + " over " + c.Baseline
		change := strconv.FormatFloat(100*(rates[c.Configuration]/rates[c.Baseline]-1), 'f', 0, 64)
		if got := string(c.Value) + ", is " + change; string(c.Value) != change && got != misprints[name] {
			t.Errorf("%s: %s", name, got)
		}
		delete(misprints, name)
	}
	if len(rates) != 6 || len(misprints) != 0 {
		t.Errorf("rates %v; not printed: %v", rates, misprints)
	}
	for rate, size := range map[Number]int{"9280": 1, "981": 100} {
		if !slices.ContainsFunc(Collocations(), func(c Collocated) bool {
			return c.Value == rate && c.Size == size && c.Form == "responses/s"
		}) {
			t.Errorf("no rate %s with %d KB", rate, size)
		}
	}
}
