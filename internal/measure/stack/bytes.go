package stack

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// byteUnits are the units of memory, the largest first.
var byteUnits = []struct {
	suffix string
	bytes  int64
}{{"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10}}

// ParseBytes parses a positive number of bytes: 1280, 64KiB, 512MiB, 1GiB.
func ParseBytes(text string) (int64, error) {
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

// FormatBytes formats n for ParseBytes, in the largest unit that gives a whole number.
func FormatBytes(n int64) string {
	for _, u := range byteUnits {
		if n != 0 && n%u.bytes == 0 {
			return strconv.FormatInt(n/u.bytes, 10) + u.suffix
		}
	}
	return strconv.FormatInt(n, 10)
}
