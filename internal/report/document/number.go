package document

import (
	"encoding/json"
	"fmt"
	"math"
	"strconv"
)

// Number is a float that may be missing: NaN, null in JSON.
type Number float64

// Missing is the number that is not there.
var Missing = Number(math.NaN())

// Defined reports whether there is a finite number.
func (n Number) Defined() bool { return !math.IsNaN(float64(n)) && !math.IsInf(float64(n), 0) }

// MarshalJSON writes null for a missing number.
func (n Number) MarshalJSON() ([]byte, error) {
	if !n.Defined() {
		return []byte("null"), nil
	}
	return json.Marshal(float64(n))
}

// Inverse returns 1/n, missing where there is none.
func (n Number) Inverse() Number {
	if n == 0 {
		return Missing
	}
	return 1 / n
}

// Sum adds numbers up. It is missing if one of them is.
func Sum(ns []Number) Number {
	total := 0.0
	for _, n := range ns {
		total += float64(n)
	}
	if len(ns) == 0 {
		return Missing
	}
	return Number(total)
}

// Interval is a confidence interval; its bounds are missing when there is none.
type Interval struct {
	Low        Number `json:"low"`
	High       Number `json:"high"`
	Confidence Number `json:"confidence"`
}

// NoInterval has no bounds.
var NoInterval = Interval{Missing, Missing, Missing}

// Inverse is the interval of the inverse.
func (i Interval) Inverse() Interval {
	return Interval{i.High.Inverse(), i.Low.Inverse(), i.Confidence}
}

// None is printed where there is no value.
const None = "–"

// Rounded prints v with four significant digits, without decimals above 1000 and when v
// is whole.
func Rounded(v Number) string {
	if float64(v) == math.Trunc(float64(v)) {
		return Decimal(v, 0)
	}
	return Decimal(v, Decimals(v))
}

// Decimals returns how many decimals of v are worth printing.
func Decimals(v Number) int {
	if !v.Defined() || v == 0 {
		return 0
	}
	return min(9, max(0, 3-int(math.Floor(math.Log10(math.Abs(float64(v)))))))
}

// Decimal prints v with a number of decimals.
func Decimal(v Number, places int) string {
	if !v.Defined() {
		return None
	}
	return strconv.FormatFloat(float64(v), 'f', places, 64)
}

// Exact prints v so that reading it returns the same number; empty where it is missing.
func Exact(v Number) string {
	if !v.Defined() {
		return ""
	}
	return strconv.FormatFloat(float64(v), 'g', -1, 64)
}

// Exacts is Exact of each number.
func Exacts(ns ...Number) []string {
	fields := make([]string, len(ns))
	for i, n := range ns {
		fields[i] = Exact(n)
	}
	return fields
}

// Ratio prints a ratio with two decimals, below one tenth with three significant
// digits.
func Ratio(v Number) string { return ratioTo(v, 2) }

// ratioTo prints a ratio with the decimals given, below one tenth with three significant
// digits.
func ratioTo(v Number, places int) string {
	if v.Defined() && math.Abs(float64(v)) < 0.1 && v != 0 {
		places = 2 - int(math.Floor(math.Log10(math.Abs(float64(v)))))
	}
	return Decimal(v, min(places, 9))
}

// RatioWithInterval prints a ratio with its interval if there is one, with as many decimals as
// show on which side of 1 the bounds are: "1.52 [1.49, 1.55]".
func RatioWithInterval(r Number, i Interval) string { return withInterval(r, i, "") }

// TimesWithInterval is RatioWithInterval with a sign: "1.52× [1.49, 1.55]".
func TimesWithInterval(r Number, i Interval) string { return withInterval(r, i, "×") }

func withInterval(r Number, i Interval, sign string) string {
	if !i.Low.Defined() {
		return Ratio(r) + sign
	}
	places := intervalDecimals(i)
	return fmt.Sprintf("%s%s [%s, %s]", ratioTo(r, places), sign, ratioTo(i.Low, places), ratioTo(i.High, places))
}

// Span prints an interval after a comma, if there is one.
func Span(i Interval) string {
	if !i.Low.Defined() {
		return ""
	}
	places := intervalDecimals(i)
	return fmt.Sprintf(", interval %s to %s", ratioTo(i.Low, places), ratioTo(i.High, places))
}

// intervalDecimals is the least number of decimals, from 2 to 9, with which no bound of i
// is printed as 1 without being 1.
func intervalDecimals(i Interval) int {
	places := 2
	for ; places < 9; places++ {
		unit := math.Pow(10, -float64(places))
		close := func(v Number) bool { return v != 1 && math.Abs(float64(v)-1) <= unit/2 }
		if !close(i.Low) && !close(i.High) {
			break
		}
	}
	return places
}

// Bracket prints an interval.
func Bracket(i Interval, places int) string {
	if !i.Low.Defined() {
		return None
	}
	return "[" + Decimal(i.Low, places) + ", " + Decimal(i.High, places) + "]"
}

// Percent prints a positive fraction as a percentage.
func Percent(v float64) string {
	if v = 100 * v; v < 9.95 {
		return strconv.FormatFloat(v, 'g', 2, 64) + " %"
	}
	return strconv.FormatFloat(v, 'f', 0, 64) + " %"
}

// PercentUp prints a positive fraction as a percentage with two digits, rounded up.
func PercentUp(v float64) string {
	if v <= 0 {
		return "0 %"
	}
	unit := math.Pow(10, math.Floor(math.Log10(v))-1)
	return Percent(math.Ceil(v/unit-1e-9) * unit)
}

// Level prints a confidence with the digits that matter: "95 %", "99.17 %".
func Level(confidence Number) string {
	return strconv.FormatFloat(math.Round(1e4*float64(confidence))/100, 'f', -1, 64) + " %"
}

// PValue prints p as "p = 0.013".
func PValue(p Number) string {
	switch {
	case !p.Defined():
		return "p undefined"
	case p < 0.001:
		return "p < 0.001"
	case p < 0.1:
		return "p = " + strconv.FormatFloat(float64(p), 'g', 2, 64)
	}
	return "p = " + strconv.FormatFloat(float64(p), 'f', 2, 64)
}

// Change words a ratio: "18 % lower", "2.1 times".
func Change(r Number) string {
	switch {
	case r >= 2:
		return Ratio(r) + " times"
	case r >= 1:
		return Percent(float64(r)-1) + " higher"
	}
	return Percent(1-float64(r)) + " lower"
}
