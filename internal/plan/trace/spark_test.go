package trace

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// testdata/spark is what deploy/plan/google2019.py has written with Spark 4.3.0 of
// testdata/google2019 at 1001 s, in one shard. It has the same users as the JSON lines.
func TestSparkParquet(t *testing.T) {
	want, _, err := Read(t.Context(), "google2019", []string{"testdata/google2019"}, Options{Period: At(1001 * time.Second)})
	if err != nil {
		t.Fatal(err)
	}
	got, report, err := Read(t.Context(), "parquet", []string{"testdata/spark"}, Options{})
	if err != nil {
		t.Fatal(err)
	}
	addsUp(t, report)
	if diff := cmp.Diff(want, got); diff != "" || len(want) == 0 {
		t.Errorf("%d users; parquet (-want +got):\n%s", len(want), diff)
	}
}
