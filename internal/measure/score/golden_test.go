package score

import (
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"unnest.io/unnest/internal/report/papers"
)

// diskRows returns the results of Lubomski et al., Tables 5 and 6, except cases and
// configurations with a prefix in without.
func diskRows(without ...string) []Row {
	var rows []Row
	for _, s := range papers.DiskScores() {
		left := func(prefix string) bool {
			return strings.HasPrefix(s.Case, prefix) || strings.HasPrefix(s.Configuration, prefix)
		}
		if !slices.ContainsFunc(without, left) {
			rows = append(rows, Row{s.Suite, s.Case, s.Order, s.Unit, s.Configuration, s.Value.Float(), 0})
		}
	}
	return rows
}

// one returns the only suite of rows.
func one(t *testing.T, rows []Row, opts Options) Suite {
	t.Helper()
	suites, err := Suites(rows, opts)
	if err != nil || len(suites) != 1 {
		t.Fatalf("got %d suites, %v; want one", len(suites), err)
	}
	return suites[0]
}

// TestPrintedScores checks every score of Tables 5 and 6.
func TestPrintedScores(t *testing.T) {
	disk := one(t, diskRows(), Options{})
	cases := map[string]Case{}
	for _, c := range disk.Cases {
		cases[c.Name] = c
	}
	checked := 0
	for _, s := range papers.DiskScores() {
		got := cases[s.Case].Cells[s.Configuration].Score
		if math.Abs(got-s.Score.Float()) > s.Score.Unit()/2+1e-9 {
			t.Errorf("%s, %s: score %.4f, printed %s", s.Case, s.Configuration, got, s.Score)
		}
		checked++
	}
	if checked != 108 {
		t.Errorf("checked %d scores, want 108", checked)
	}
}

// TestPrintedTotals checks the totals of Tables 5 and 6, which are sums of rounded
// scores, and those by formula (2) as it is written.
func TestPrintedTotals(t *testing.T) {
	disk := one(t, diskRows(), Options{})
	raw := map[string]float64{
		"metal.local": 7.065, "metal.mnt": 7.543, "metal.aufs": 5.060,
		"vm.local": 11.389, "vm.mnt": 10.755, "vm.aufs": 9.678,
	}
	checked := 0
	for _, printed := range papers.Totals() {
		if printed.Suite != "disk" {
			continue
		}
		checked++
		got := disk.Totals[printed.Configuration]
		if got.Rounded != printed.Total.Float() {
			t.Errorf("%s: sum of rounded scores %v, printed %s", printed.Configuration, got.Rounded, printed.Total)
		}
		if want := raw[printed.Configuration]; math.Abs(got.Raw-want) > 0.0005 {
			t.Errorf("%s: total %.4f, want %.3f", printed.Configuration, got.Raw, want)
		}
		if got.Cases != 18 || got.Partial {
			t.Errorf("%s: %d cases, partial %v; want all 18", printed.Configuration, got.Cases, got.Partial)
		}
	}
	if checked != 6 {
		t.Errorf("checked %d totals, want 6", checked)
	}
}

// The four variants of Dbench decide between a bare-metal and a virtual
// configuration; none of them does alone.
func TestDbenchDecides(t *testing.T) {
	all, without := one(t, diskRows(), Options{}), one(t, diskRows("Dbench"), Options{})
	if len(without.Cases) != 14 {
		t.Fatalf("%d cases without Dbench, want 14", len(without.Cases))
	}
	if all.Totals["metal.mnt"].Raw >= all.Totals["vm.aufs"].Raw {
		t.Errorf("with Dbench metal.mnt is not behind vm.aufs: %v", all.Totals)
	}
	if without.Totals["metal.mnt"].Raw <= without.Totals["vm.aufs"].Raw {
		t.Errorf("without Dbench metal.mnt is not before vm.aufs: %v", without.Totals)
	}
	want := []Warning{{FamilyTurns, "without the 4 variants Dbench1 to Dbench4 metal.mnt (6.560) overtakes vm.aufs (6.176)"}}
	if diff := cmp.Diff(want, all.Warnings); diff != "" {
		t.Errorf("warnings differ (-want +got):\n%s", diff)
	}
}

// The geometric mean does not depend on other configurations; the total does.
func TestGeoMeanIsIndependentOfOtherConfigurations(t *testing.T) {
	opts := Options{Baseline: "metal.local"}
	all, metal := one(t, diskRows(), opts), one(t, diskRows("vm."), opts)
	for _, name := range metal.Configurations {
		if diff := cmp.Diff(all.GeoMeans[name], metal.GeoMeans[name]); diff != "" {
			t.Errorf("%s: geometric mean differs (-all +metal):\n%s", name, diff)
		}
	}
	if a, b := all.Totals["metal.local"].Raw, metal.Totals["metal.local"].Raw; b-a < 1 {
		t.Errorf("total %v with and %v without the virtual configurations: want it to grow by more than 1", a, b)
	}
}
