package pack

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Parse returns options with choices such as moving=container or rounds=2.
func Parse(choices []string) (o Options, err error) {
	keys := []string{"requested", "wasted", "moving", "emptying", "rounds", "effort"}
	for _, text := range choices {
		key, value, ok := strings.Cut(text, "=")
		if !ok || !slices.Contains(keys, key) {
			return o, fmt.Errorf("%q is unknown: want KEY=VALUE with one of the keys %s", text, strings.Join(keys, ", "))
		}
		switch key {
		case "requested":
			o.Requested, err = parseChoice(key, value, OfVM, OfLargest)
		case "wasted":
			o.Wasted, err = parseChoice(key, value, OfVM, OfLargest)
		case "moving":
			o.Moving, err = parseChoice(key, value, MoveByVM, MoveByContainer)
		case "emptying":
			o.Emptying, err = parseChoice(key, value, MostWastedFirst, LeastWastedFirst, CheapestFirst, AsBought)
		case "rounds":
			o.Rounds, err = parseCount(key, value)
		case "effort":
			o.Effort, err = parseCount(key, value)
		}
		if err != nil {
			return o, err
		}
	}
	return o, nil
}

// parseChoice is choose without a default.
func parseChoice[T ~string](key, value string, known ...T) (T, error) {
	if !slices.Contains(known, T(value)) {
		return "", fmt.Errorf("%s=%s: want one of %s", key, value, strings.Trim(strings.ReplaceAll(fmt.Sprint(known), " ", ", "), "[]"))
	}
	return T(value), nil
}

func parseCount(key, value string) (int, error) {
	n, err := strconv.Atoi(value)
	if err != nil || n < 0 {
		return 0, fmt.Errorf("%s=%s: want a whole number from 0", key, value)
	}
	return n, nil
}
