package report

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"

	"unnest/internal/measure/result"
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
func PKB(w io.Writer, doc Document) error {
	if doc.Source.ID == "" {
		return fmt.Errorf("print PerfKitBenchmarker samples: %w", ErrNoSamples)
	}
	enc := json.NewEncoder(w)
	for i, s := range doc.Samples {
		if err := enc.Encode(pkbSample{
			Metric: s.Metric, Value: s.Value, Unit: s.Unit, Timestamp: float64(s.Start.UnixMicro()) / 1e6,
			Test: s.Case, RunURI: s.Run, SampleURI: s.Run + "-" + strconv.Itoa(i), Product: "unnest", Labels: pkbLabels(doc.Source, s),
		}); err != nil {
			return fmt.Errorf("print PerfKitBenchmarker sample of %s: %w", s.Execution(), err)
		}
	}
	return nil
}

// pkbLabels collapses the labels of a sample, in the order of their keys.
func pkbLabels(run result.Run, s result.Sample) string {
	labels := map[string]string{
		"accelerator": run.Accelerator, "block": strconv.Itoa(s.Block), "boot": s.Boot, "configuration": s.Configuration,
		"order": string(s.Order), "repetition": strconv.Itoa(s.Repetition), "suite": s.Suite,
		"duration": strconv.FormatFloat(s.Duration, 'g', -1, 64),
	}
	for k, v := range s.Tags {
		labels["tag_"+k] = v
	}
	var parts []string
	for _, k := range slices.Sorted(maps.Keys(labels)) {
		if labels[k] != "" {
			parts = append(parts, "|"+pkbText(k)+":"+pkbText(labels[k])+"|")
		}
	}
	return strings.Join(parts, ",")
}

// pkbText replaces the characters that end a label.
func pkbText(s string) string { return strings.ReplaceAll(clean(s), "|", "/") }
