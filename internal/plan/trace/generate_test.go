package trace

import (
	"bytes"
	"iter"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"unnest.io/unnest/internal/plan/cluster"
	"unnest.io/unnest/internal/plan/synthetic"
)

// What writeCSV writes, Read reads back.
func TestWriteCSV(t *testing.T) {
	want := slices.Collect(first(synthetic.Users{Seed: 3, Mixed: 1}.All(), 40))
	want = append(want, cluster.User{Name: `zoë, "z"`, Pods: []cluster.Pod{{Name: "p", Containers: []cluster.Container{
		{Name: "c", Request: cluster.Resources{CPU: 1, Memory: 1}},
		{Name: "d", Request: cluster.Resources{CPU: 1_000_000_010, Memory: 1 << 40}},
	}}}})
	path := filepath.Join(t.TempDir(), "users.csv")
	var b bytes.Buffer
	if err := writeCSV(&b, slices.Values(want)); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, b.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	got, _, err := Read(t.Context(), "csv", []string{path}, Options{})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	whole := []cluster.User{{Name: "u", Pods: []cluster.Pod{{Name: "p", Whole: true}}}}
	if err := writeCSV(&b, slices.Values(whole)); err == nil || !strings.Contains(err.Error(), "write pod p of u") {
		t.Errorf("a pod that stays whole is written, with error %v", err)
	}
}

// BenchmarkRead reads a generated file of a million containers, next to a plain scan of the same
// bytes, which no reader beats.
func BenchmarkRead(b *testing.B) {
	path := filepath.Join(b.TempDir(), "generated.csv")
	var text bytes.Buffer
	if err := writeCSV(&text, first(synthetic.Users{Seed: 1, Scale: 8}.All(), 3800)); err != nil {
		b.Fatal(err)
	}
	if err := os.WriteFile(path, text.Bytes(), 0o600); err != nil {
		b.Fatal(err)
	}
	b.Run("read", func(b *testing.B) {
		for b.Loop() {
			_, report, err := Read(b.Context(), "csv", []string{path}, Options{})
			if err != nil {
				b.Fatal(err)
			}
			b.ReportMetric(float64(report.Rows), "rows")
		}
		b.SetBytes(int64(text.Len()))
	})
	b.Run("scan", func(b *testing.B) {
		for b.Loop() {
			if _, err := scan(b.Context(), []string{path}); err != nil {
				b.Fatal(err)
			}
		}
		b.SetBytes(int64(text.Len()))
	})
}

// first yields the first n.
func first(users iter.Seq[cluster.User], n int) iter.Seq[cluster.User] {
	return func(yield func(cluster.User) bool) {
		i := 0
		for u := range users {
			if i++; i > n || !yield(u) {
				return
			}
		}
	}
}
