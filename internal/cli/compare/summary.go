package compare

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"

	"unnest.io/unnest/internal/cli/usage"
	"unnest.io/unnest/internal/measure/stats"
	"unnest.io/unnest/internal/report/means"
)

// compareSummaries compares the means in opts.A and opts.B.
func compareSummaries(opts Options) error {
	a, err := parseMoments("A", opts.A)
	if err != nil {
		return err
	}
	b, err := parseMoments("B", opts.B)
	if err != nil {
		return err
	}
	doc, err := means.Build(a, b)
	if errors.Is(err, stats.ErrNoVariance) {
		return usage.Errorf("arguments A and B: both standard errors are 0, so there is no test: give at least one above 0, with more digits if it was rounded")
	}
	if err != nil {
		return err
	}
	return opts.Output.Print(opts.Streams, doc)
}

// parseMoments reads MEAN,STANDARD_ERROR,N. Errors call the argument name.
func parseMoments(name, text string) (stats.Moments, error) {
	refuse := func(why string) (stats.Moments, error) {
		return stats.Moments{}, usage.Errorf("argument %s, %q: %s", name, text, why)
	}
	fields := strings.Split(text, ",")
	if len(fields) != 3 {
		return refuse("want MEAN,STANDARD_ERROR,N, such as 1068.5,2.40,6")
	}
	var numbers [2]float64
	for i, what := range []string{"mean", "standard error"} {
		x, err := strconv.ParseFloat(strings.TrimSpace(fields[i]), 64)
		if err != nil || math.IsNaN(x) || math.IsInf(x, 0) {
			return refuse(fmt.Sprintf("%s %q is not a finite number: write it as 1068.5 or 3.3e-4", what, fields[i]))
		}
		numbers[i] = x
	}
	if numbers[1] < 0 {
		return refuse(fmt.Sprintf("standard error %s is negative: give the standard error of the mean, s/√n", fields[1]))
	}
	n, err := strconv.Atoi(strings.TrimSpace(fields[2]))
	if err != nil || n < 2 {
		return refuse(fmt.Sprintf("N %q: give the number of runs, a whole number of at least 2", fields[2]))
	}
	return stats.Moments{N: n, Mean: numbers[0], StdErr: numbers[1]}, nil
}
