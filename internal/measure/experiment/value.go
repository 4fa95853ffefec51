package experiment

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"unnest.io/unnest/internal/measure/stack"
)

// The parsers of single values. Their errors give the accepted values and the found one.

func parseAny(text string) (string, error) { return text, nil }

func parseSeed(text string) (uint64, error) {
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil || n == 0 {
		return 0, fmt.Errorf("want a whole number above 0, got %q", text)
	}
	return n, nil
}

// parseSize parses the size of a message, at most 1 GiB.
func parseSize(text string) (int, error) {
	n, err := stack.ParseBytes(text)
	if err == nil && n > 1<<30 {
		err = fmt.Errorf("want at most 1GiB, got %q", text)
	}
	return int(n), err
}

// parsePercent parses 3%, 0.5% and 2.5 % as a fraction.
func parsePercent(text string) (float64, error) {
	digits, ok := strings.CutSuffix(text, "%")
	percent, err := strconv.ParseFloat(strings.TrimSpace(digits), 64)
	if !ok || err != nil || !(percent > 0 && percent < 100) {
		return 0, fmt.Errorf("want a percentage between 0%% and 100%% such as 3%% or 0.5%%, got %q", text)
	}
	return percent / 100, nil
}

// parseIntensity parses a load in percent of the full load: 10%.
func parseIntensity(text string) (int, error) {
	digits, ok := strings.CutSuffix(text, "%")
	n, err := strconv.Atoi(strings.TrimSpace(digits))
	if !ok || err != nil || n < 1 || n > maxIntensity {
		return 0, fmt.Errorf("want a whole percentage from 1%% to %d%%, got %q", maxIntensity, text)
	}
	return n, nil
}

// maxIntensity is twice the full load.
const maxIntensity = 200

// oneOf returns a parser of words.
func oneOf[T ~string](words ...T) func(string) (T, error) {
	return func(text string) (T, error) {
		if !slices.Contains(words, T(text)) {
			var list []string
			for _, w := range words {
				list = append(list, string(w))
			}
			return "", fmt.Errorf("want %s, got %q", strings.Join(list, " or "), text)
		}
		return T(text), nil
	}
}
