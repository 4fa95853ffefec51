package yamldoc

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Text accepts any text except the empty one.
func Text(text string) (string, error) {
	if text == "" {
		return "", errors.New("want a text, got nothing")
	}
	return text, nil
}

// Name accepts texts that can be part of file names and of paths of keys.
func Name(text string) (string, error) {
	for _, r := range text {
		letter := 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || '0' <= r && r <= '9'
		if !letter && !strings.ContainsRune("_-.", r) {
			return "", fmt.Errorf("want letters, digits, _, - and . only, got %q", text)
		}
	}
	return Text(text)
}

// Count returns a parser of whole numbers from low to high.
func Count(low, high int) func(string) (int, error) {
	return func(text string) (int, error) {
		n, err := strconv.Atoi(text)
		if err != nil || n < low || n > high {
			return 0, fmt.Errorf("want a whole number from %d to %d, got %q", low, high, text)
		}
		return n, nil
	}
}

// Bool accepts true and false.
func Bool(text string) (bool, error) {
	if text != "true" && text != "false" {
		return false, fmt.Errorf("want true or false, got %q", text)
	}
	return text == "true", nil
}

// Duration accepts durations above 0, up to a day.
func Duration(text string) (time.Duration, error) {
	d, err := time.ParseDuration(text)
	if err != nil || d <= 0 || d > 24*time.Hour {
		return 0, fmt.Errorf("want a duration such as 200ms, 1s or 2m, got %q", text)
	}
	return d, nil
}

// DurationOrZero is like Duration, but also accepts 0.
func DurationOrZero(text string) (time.Duration, error) {
	if text == "0" || text == "0s" {
		return 0, nil
	}
	return Duration(text)
}
