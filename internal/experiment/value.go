package experiment

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// The parsers of single values. Their errors say what is wanted and what was
// found.

func parseText(text string) (string, error) {
	if text == "" {
		return "", fmt.Errorf("want a text, got nothing")
	}
	return text, nil
}

func parseAny(text string) (string, error) { return text, nil }

// parseName accepts what can be part of a key in results and of a file's name.
func parseName(text string) (string, error) {
	for _, r := range text {
		letter := 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || '0' <= r && r <= '9'
		if !letter && !strings.ContainsRune("_-.", r) {
			return "", fmt.Errorf("want letters, digits, _, - and . only, got %q", text)
		}
	}
	return parseText(text)
}

// count returns a parser of whole numbers from low to high.
func count(low, high int) func(string) (int, error) {
	return func(text string) (int, error) {
		n, err := strconv.Atoi(text)
		if err != nil || n < low || n > high {
			return 0, fmt.Errorf("want a whole number from %d to %d, got %q", low, high, text)
		}
		return n, nil
	}
}

func parseBool(text string) (bool, error) {
	if text != "true" && text != "false" {
		return false, fmt.Errorf("want true or false, got %q", text)
	}
	return text == "true", nil
}

func parseSeed(text string) (uint64, error) {
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil || n == 0 {
		return 0, fmt.Errorf("want a whole number above 0, got %q", text)
	}
	return n, nil
}

// parseDuration accepts durations up to a day.
func parseDuration(text string) (time.Duration, error) {
	d, err := time.ParseDuration(text)
	if err != nil || d <= 0 || d > 24*time.Hour {
		return 0, fmt.Errorf("want a duration such as 200ms, 1s or 2m, got %q", text)
	}
	return d, nil
}

// parseDurationOrZero is parseDuration that takes 0 as well.
func parseDurationOrZero(text string) (time.Duration, error) {
	if text == "0" || text == "0s" {
		return 0, nil
	}
	return parseDuration(text)
}

var byteUnits = []struct {
	suffix string
	bytes  int64
}{{"KiB", 1 << 10}, {"MiB", 1 << 20}, {"GiB", 1 << 30}}

// parseBytes accepts 1280, 64KiB, 512MiB and 1GiB.
func parseBytes(text string) (int64, error) {
	digits, unit := text, int64(1)
	for _, u := range byteUnits {
		if before, ok := strings.CutSuffix(text, u.suffix); ok {
			digits, unit = strings.TrimSpace(before), u.bytes
		}
	}
	n, err := strconv.ParseInt(digits, 10, 64)
	if err != nil || n <= 0 || n > math.MaxInt64/unit {
		return 0, fmt.Errorf("want a positive number of bytes such as 1280 or 64KiB, got %q", text)
	}
	return n * unit, nil
}

// parseSize accepts the size of a message, at most 1 GiB.
func parseSize(text string) (int, error) {
	n, err := parseBytes(text)
	if err == nil && n > 1<<30 {
		err = fmt.Errorf("want at most 1GiB, got %q", text)
	}
	return int(n), err
}
