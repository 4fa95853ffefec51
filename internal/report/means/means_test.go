package means

import (
	"errors"
	"math"
	"strings"
	"testing"

	"unnest.io/unnest/internal/measure/stats"
)

// The test is Welch's of the thesis, FitzGerald 2014, Table 5: L1 against L0 on S390x.
func TestBuild(t *testing.T) {
	doc, err := Build(stats.Moments{N: 6, Mean: 1068.5, StdErr: 2.4}, stats.Moments{N: 6, Mean: 1041.3, StdErr: 18.6})
	if err != nil {
		t.Fatal(err)
	}
	want := (1068.5 - 1041.3) / math.Hypot(2.4, 18.6)
	if got := doc.Data.(Comparison); math.Abs(float64(got.T)-want) > 1e-12 || got.DFTruncated != 5 || got.DeltaPercentOf != "A" {
		t.Errorf("got %+v, want t %v", got, want)
	}
	if !strings.HasPrefix(doc.Answer, "B differs from A by -2.55 % of A (p = 0.2") {
		t.Errorf("answer %q", doc.Answer)
	}
	if len(doc.Records) != 2 || len(doc.Records[0]) != len(doc.Records[1]) || doc.Records[1][0] != "1068.5" {
		t.Errorf("records %q", doc.Records)
	}
	if _, err := Build(stats.Moments{N: 6, Mean: 1}, stats.Moments{N: 6, Mean: 2}); !errors.Is(err, stats.ErrNoVariance) {
		t.Errorf("without variance: %v", err)
	}
}
