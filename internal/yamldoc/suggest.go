package yamldoc

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// suggest says which of the known keys the unknown one was meant to be.
func suggest(unknown string, keys map[string]Key) string {
	known := slices.Sorted(maps.Keys(keys))
	best, nearest := 1+max(2, len(unknown)/3), ""
	for _, k := range known {
		if d := distance(unknown, k); d < best {
			best, nearest = d, k
		}
	}
	if nearest == "" {
		return "known are " + strings.Join(known, ", ")
	}
	return fmt.Sprintf("did you mean %s?", nearest)
}

// example names the first keys in alphabetical order.
func example(keys map[string]Key) string {
	known := slices.Sorted(maps.Keys(keys))
	return strings.Join(known[:min(3, len(known))], ", ")
}

// distance is the number of bytes to insert, delete or replace to make b of a.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			replace := diagonal
			if a[i] != b[j] {
				replace++
			}
			diagonal = row[j+1]
			row[j+1] = min(replace, diagonal+1, row[j]+1)
		}
	}
	return row[len(b)]
}
