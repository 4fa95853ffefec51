package experiment

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// The parsers of single values. Their errors say what is wanted and what was
// found.

func parseAny(text string) (string, error) { return text, nil }

func parseSeed(text string) (uint64, error) {
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil || n == 0 {
		return 0, fmt.Errorf("want a whole number above 0, got %q", text)
	}
	return n, nil
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
