package use

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
)

// prometheusSeries is a series of a matrix or a vector, as the HTTP API of Prometheus prints it.
type prometheusSeries struct {
	Metric map[string]string    `json:"metric"`
	Values [][2]json.RawMessage `json:"values"`
	Value  *[2]json.RawMessage  `json:"value"`
}

// fixPrometheus ends the errors about series of the wrong form.
const fixPrometheus = "query sum by (namespace, pod, container) of the rate of container_cpu_usage_seconds_total or of container_memory_working_set_bytes"

// readPrometheus adds the samples of a query, in units of which one has unit. Samples that are
// not a number are skipped.
func readPrometheus(r io.Reader, unit, most int64, add func(pod Workload, container string, x int64)) error {
	all, err := series(r)
	if err != nil {
		return err
	}
	for _, s := range all {
		namespace, pod, container := s.Metric["namespace"], s.Metric["pod"], s.Metric["container"]
		name := s.Metric["__name__"]
		_, perCPU := s.Metric["cpu"]
		switch {
		case strings.HasSuffix(name, "_total"):
			return fmt.Errorf("%s counts up: %s", name, fixPrometheus)
		case perCPU && s.Metric["cpu"] != "total":
			return fmt.Errorf("a series is of the processor %q alone: %s", s.Metric["cpu"], fixPrometheus)
		case namespace == "" || pod == "" || s.Metric["container"] == "" && !hasContainer(all):
			return fmt.Errorf("a series lacks the label namespace, pod or container: %s", fixPrometheus)
		case container == "" || container == "POD": // the pod as a whole, and its pause container
			continue
		}
		if s.Value != nil {
			s.Values = append(s.Values, *s.Value)
		}
		for _, v := range s.Values {
			x, ok, err := prometheusNumber(v[1], unit, most)
			if err != nil {
				return fmt.Errorf("pod %s/%s: container %s: %w", namespace, pod, container, err)
			}
			if ok {
				add(Pod(namespace, pod), container, x)
			}
		}
	}
	return nil
}

// hasContainer reports whether some series is of a container. cAdvisor has series of whole pods
// next to them.
func hasContainer(all []prometheusSeries) bool {
	return slices.ContainsFunc(all, func(s prometheusSeries) bool { return s.Metric["container"] != "" })
}

// series returns the series of an answer, or of the bare list that promtool prints.
func series(r io.Reader) (all []prometheusSeries, err error) {
	data, err := io.ReadAll(r)
	if err != nil {
		return nil, err
	}
	if bytes.HasPrefix(bytes.TrimSpace(data), []byte("[")) {
		err = json.Unmarshal(data, &all)
	} else {
		var answer struct {
			Status string `json:"status"`
			Error  string `json:"error"`
			Data   struct {
				Type   string          `json:"resultType"`
				Result json.RawMessage `json:"result"`
			} `json:"data"`
		}
		err = json.Unmarshal(data, &answer)
		switch {
		case err != nil:
		case answer.Status == "error":
			return nil, fmt.Errorf("is an error of Prometheus, %q: correct the query", answer.Error)
		case answer.Data.Type != "matrix" && answer.Data.Type != "vector":
			return nil, fmt.Errorf("is not an answer to query_range (status %q, result %q): save what /api/v1/query_range returns", answer.Status, answer.Data.Type)
		default:
			err = json.Unmarshal(answer.Data.Result, &all)
		}
	}
	switch {
	case err != nil:
		return nil, fmt.Errorf("not JSON of Prometheus: %w", err)
	case len(all) == 0:
		return nil, errors.New("has no series: " + fixPrometheus)
	}
	return all, nil
}

// prometheusNumber reads a sample, which is a text in JSON.
func prometheusNumber(raw json.RawMessage, unit, most int64) (x int64, ok bool, err error) {
	var text string
	if err := json.Unmarshal(raw, &text); err != nil {
		return 0, false, fmt.Errorf("sample %s: want a number in quotes", raw)
	}
	v, err := strconv.ParseFloat(text, 64)
	v *= float64(unit)
	switch {
	case err != nil || v < 0 && !math.IsInf(v, -1) || v > float64(most) && !math.IsInf(v, 1):
		return 0, false, fmt.Errorf("sample %q: want a number from 0 to %d", text, most/unit)
	case math.IsNaN(v) || math.IsInf(v, 0):
		return 0, false, nil
	}
	return int64(math.Ceil(v)), true, nil
}
