package document

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Join joins the parts that are not empty with a comma.
func Join(parts ...string) string {
	return strings.Join(slices.DeleteFunc(parts, func(p string) bool { return p == "" }), ", ")
}

// Plural prints a count with its noun.
func Plural(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// List joins names as "a, b and c".
func List(names []string) string {
	if len(names) < 2 {
		return strings.Join(names, "")
	}
	last := len(names) - 1
	return strings.Join(names[:last], ", ") + " and " + names[last]
}

// Settings writes key=value pairs in the order of their keys.
func Settings(of map[string]string) string {
	var parts []string
	for _, key := range slices.Sorted(maps.Keys(of)) {
		parts = append(parts, key+"="+of[key])
	}
	return strings.Join(parts, ", ")
}

var notAnchor = regexp.MustCompile(`[^a-zA-Z0-9]+`)

// Anchor makes an HTML identifier of parts.
func Anchor(parts ...string) string {
	return strings.Trim(notAnchor.ReplaceAllString(strings.ToLower(strings.Join(parts, "-")), "-"), "-")
}

// NoBreak is a no-break space.
const NoBreak = "\u00a0"

var numberSpaces = regexp.MustCompile(`(\d) (%|B\b|times|repetitions?)|\b([pn]) ([<=]) (\d)|\[-?[\d.]+, -?[\d.]+\]`)

// Glue keeps a number with its unit, a p with its value, and an interval on one line.
func Glue(s string) string {
	return numberSpaces.ReplaceAllStringFunc(s, func(m string) string { return strings.ReplaceAll(m, " ", NoBreak) })
}

// Clean replaces control characters, which could control a terminal.
func Clean(s string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == '\n' || r == '\t':
			return ' '
		case unicode.IsControl(r):
			return utf8.RuneError
		}
		return r
	}, s)
}

// Without returns the names that are not among others.
func Without(names, others []string) []string {
	return slices.DeleteFunc(slices.Clone(names), func(n string) bool { return slices.Contains(others, n) })
}
