package report_test

import (
	"fmt"
	"math"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// The quickstarts whose blocks have guests of their own: how often does the interval of a run hold what the other runs found? Each
// run is compared with the geometric mean of the others, which ran on the same machine.
func TestQuickstartsCover(t *testing.T) {
	page, err := os.ReadFile("../../docs/results/quickstart-decisions.md")
	if err != nil {
		t.Fatal(err)
	}
	_, fresh, _ := strings.Cut(string(page), "\n## With guests of its own for each block\n")
	ratio := regexp.MustCompile(`(\d+\.\d+) \[(\d+\.\d+), (\d+\.\d+)\]`)
	type interval struct{ mean, low, high float64 }
	questions := make([][]interval, 2)
	for line := range strings.Lines(fresh) {
		found := ratio.FindAllStringSubmatch(line, -1)
		if !strings.HasPrefix(line, "| 20") || len(found) != len(questions) {
			continue
		}
		for q, m := range found {
			var v [3]float64
			for i := range v {
				if v[i], err = strconv.ParseFloat(m[i+1], 64); err != nil {
					t.Fatal(err)
				}
			}
			questions[q] = append(questions[q], interval{math.Log(v[0]), math.Log(v[1]), math.Log(v[2])})
		}
	}
	held, all := 0, 0
	for _, runs := range questions {
		sum := 0.0
		for _, r := range runs {
			sum += r.mean
		}
		for _, r := range runs {
			others := (sum - r.mean) / float64(len(runs)-1)
			if all++; r.low <= others && others <= r.high {
				held++
			}
		}
	}
	if len(questions[0]) < 5 {
		t.Fatalf("the page has %d such runs", len(questions[0]))
	}
	say(t, "cover", fmt.Sprintf("Of the %d intervals of %d such quickstarts on one machine, %d hold the mean of the other runs.\n", all, len(questions[0]), held))
}
