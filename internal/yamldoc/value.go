package yamldoc

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"time"
)

// Parser returns a parser of single values. Its errors say what it wants.
func Parser[T any](want string, parse func(string) (T, error), valid func(T) bool) func(string) (T, error) {
	return func(text string) (T, error) {
		value, err := parse(text)
		if err != nil || !valid(value) {
			var none T
			return none, fmt.Errorf("want %s, got %q", want, text)
		}
		return value, nil
	}
}

// Or returns a parser that also accepts these texts for the zero value.
func Or[T any](parse func(string) (T, error), texts ...string) func(string) (T, error) {
	return func(text string) (T, error) {
		if slices.Contains(texts, text) {
			var zero T
			return zero, nil
		}
		return parse(text)
	}
}

// Text accepts any text except the empty one.
func Text(text string) (string, error) {
	if text == "" {
		return "", errors.New("want a text, got nothing")
	}
	return text, nil
}

var special = regexp.MustCompile(`[^-_.a-zA-Z0-9]`)

// Name accepts texts that can be part of file names and of paths of keys.
func Name(text string) (string, error) {
	if special.MatchString(text) {
		return "", fmt.Errorf("want letters, digits, _, - and . only, got %q", text)
	}
	return Text(text)
}

// Bool accepts true and false.
func Bool(text string) (bool, error) {
	if text != "true" && text != "false" {
		return false, fmt.Errorf("want true or false, got %q", text)
	}
	return text == "true", nil
}

// Count returns a parser of whole numbers from low to high.
func Count(low, high int) func(string) (int, error) {
	return Parser(fmt.Sprintf("a whole number from %d to %d", low, high), strconv.Atoi,
		func(n int) bool { return low <= n && n <= high })
}

// Parsers of durations.
var (
	// Duration accepts durations above 0, up to a day.
	Duration = Parser("a duration such as 200ms, 1s or 2m", time.ParseDuration,
		func(d time.Duration) bool { return 0 < d && d <= 24*time.Hour })
	// DurationOrZero is like Duration, but also accepts 0.
	DurationOrZero = Or(Duration, "0", "0s")
)

// Microseconds returns a parser of whole microseconds from 0 to most.
func Microseconds(most time.Duration) func(string) (time.Duration, error) {
	return Parser(fmt.Sprintf("whole microseconds from 0 to %v, such as 50us", most), time.ParseDuration,
		func(d time.Duration) bool { return 0 <= d && d <= most && d%time.Microsecond == 0 })
}
