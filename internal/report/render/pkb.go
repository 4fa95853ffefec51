package render

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"

	"unnest.io/unnest/internal/report/document"
)

// pkbSample is one line of PerfKitBenchmarker's newline-delimited JSON.
type pkbSample struct {
	Metric    string  `json:"metric"`
	Value     float64 `json:"value"`
	Unit      string  `json:"unit"`
	Timestamp float64 `json:"timestamp"` // seconds since 1970
	Test      string  `json:"test"`
	RunURI    string  `json:"run_uri"`
	SampleURI string  `json:"sample_uri"`
	Product   string  `json:"product_name"`
	Official  bool    `json:"official"`
	Owner     string  `json:"owner"`
	Labels    string  `json:"labels"`
}

// PKB prints the samples as PerfKitBenchmarker publishes them: newline-delimited
// JSON with collapsed labels, "|key:value|,|key:value|".
func PKB(w io.Writer, doc document.Document) error {
	if doc.Samples.Run == "" {
		return fmt.Errorf("print PerfKitBenchmarker samples: %w", ErrNoSamples)
	}
	enc := json.NewEncoder(w)
	i := 0
	for s := range doc.Samples.All {
		if err := enc.Encode(pkbSample{
			Metric: s.Metric, Value: s.Value, Unit: s.Unit, Timestamp: float64(s.Start.UnixMicro()) / 1e6,
			Test: s.Test, RunURI: s.Run, SampleURI: s.Run + "-" + strconv.Itoa(i), Product: "unnest", Labels: pkbLabels(s.Labels),
		}); err != nil {
			return fmt.Errorf("print PerfKitBenchmarker sample %d, %s of %s: %w", i, s.Metric, s.Test, err)
		}
		i++
	}
	return nil
}

// pkbLabels collapses labels, in the order of their keys.
func pkbLabels(labels map[string]string) string {
	var parts []string
	for _, k := range slices.Sorted(maps.Keys(labels)) {
		if labels[k] != "" {
			parts = append(parts, "|"+pkbText(k)+":"+pkbText(labels[k])+"|")
		}
	}
	return strings.Join(parts, ",")
}

// pkbText replaces the characters that end a label.
func pkbText(s string) string { return strings.ReplaceAll(document.Clean(s), "|", "/") }
