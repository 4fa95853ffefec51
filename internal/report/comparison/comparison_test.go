package comparison

import (
	"strings"
	"testing"

	"unnest.io/unnest/internal/measure/result"
)

func TestSizeDifference(t *testing.T) {
	of := func(change func(*result.Run)) result.Run {
		run := result.Run{Configurations: []result.Configuration{{Name: "NoCont"}, {Name: "NAT", Options: map[string]string{"network": "nat"}}}, Cases: []result.Case{{Suite: "network", Name: "udp_rr", Title: "UDP"}}}
		change(&run)
		return run
	}
	for name, tc := range map[string]struct {
		change func(*result.Run)
		want   string
	}{
		"none":          {func(*result.Run) {}, ""},
		"another name":  {func(r *result.Run) { r.Configurations[1].Name, r.Configurations[1].Options = "X", nil }, ""},
		"profile":       {func(r *result.Run) { r.Configurations[0].Options = map[string]string{"profile": "paper"} }, `profile of NoCont is "" in A and "paper" in B`},
		"title of case": {func(r *result.Run) { r.Cases[0].Title = "longer" }, `and "longer" in B`},
	} {
		if got := SizeDifference(of(func(*result.Run) {}), of(tc.change)); !strings.Contains(got, tc.want) || (got == "") != (tc.want == "") {
			t.Errorf("%s: %q, want %q", name, got, tc.want)
		}
	}
}
