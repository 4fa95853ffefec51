package document

import "testing"

func TestRatioScale(t *testing.T) {
	for _, test := range []struct {
		name   string
		series ChartSeries
		want   bool
	}{
		{"all near 1", ChartSeries{Values: []Number{0.9, 1.2}}, false},
		{"all far below 1", ChartSeries{Values: []Number{0.05, 0.06}}, true},
		{"all far above 1", ChartSeries{Values: []Number{38, 1.5}}, true},
		{"an interval that is wide", ChartSeries{Values: []Number{1, 2}, Low: []Number{0.09, 1.8}, High: []Number{1.1, 2.2}}, true},
		{"what is missing", ChartSeries{Values: []Number{1, Missing}, Low: []Number{Missing, Missing}, High: []Number{2, Missing}}, false},
		{"a ratio of 0, which no logarithm has", ChartSeries{Values: []Number{0, 20}}, false},
	} {
		c := Chart{Axis: "ratio", Categories: []string{"a", "b"}, Series: []ChartSeries{test.series}}
		c.Complete()
		want := map[bool]string{false: "ratio", true: "ratio, logarithmic"}[test.want]
		if c.Log != test.want || c.Axis != want {
			t.Errorf("%s: logarithmic %v, axis %q; want %v, %q", test.name, c.Log, c.Axis, test.want, want)
		}
	}
}
