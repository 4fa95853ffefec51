package trace

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"math/bits"
	"strconv"
	"strings"

	"unnest.io/unnest/internal/plan/cluster"
)

// number is a decimal as written: mantissa × 10^exponent. Requests are whole numbers
// of small units, and a float64 on the way would make equal requests unequal.
type number struct {
	mantissa uint64
	exponent int
	why      Reason // kept, Negative or NotANumber
}

var (
	errNotDecimal = errors.New("want a decimal number")
	errTooLarge   = errors.New("is too large")
)

// parseNumber reads a decimal with an optional sign, point and exponent. An empty text
// and null, in any case, are zero.
func parseNumber(text []byte) (number, error) {
	text = bytes.TrimSpace(text)
	if len(text) == 0 {
		return number{}, nil
	}
	negative := text[0] == '-'
	rest := text
	if negative || rest[0] == '+' {
		rest = rest[1:]
	}
	n, rest, ok := digits(rest)
	if !ok {
		return word(text)
	}
	if len(rest) > 0 && (rest[0] == 'e' || rest[0] == 'E') {
		e, valid := exponent(rest[1:])
		if !valid {
			return number{}, errNotDecimal
		}
		n.exponent += e
	} else if len(rest) > 0 {
		return number{}, errNotDecimal
	}
	if negative && n.mantissa != 0 {
		n.why = Negative
	}
	return n, nil
}

// digits reads digits with at most one point, and reports whether there were any. It
// rounds down after the nineteenth digit.
func digits(text []byte) (n number, rest []byte, ok bool) {
	i, point := 0, false
	for ; i < len(text); i++ {
		c := text[i]
		switch {
		case c == '.' && !point:
			point = true
			continue
		case c < '0' || c > '9':
			return n, text[i:], ok
		}
		ok = true
		if n.mantissa < (math.MaxUint64-9)/10 {
			n.mantissa = n.mantissa*10 + uint64(c-'0')
			if point {
				n.exponent--
			}
		} else if !point {
			n.exponent++
		}
	}
	return n, nil, ok
}

// exponent reads the number after the e. It saturates, which is enough for a size that no
// int64 has.
func exponent(text []byte) (int, bool) {
	e, err := strconv.ParseInt(string(text), 10, 16)
	return int(e), err == nil || errors.Is(err, strconv.ErrRange)
}

// word reads a word in the place of a number.
func word(text []byte) (number, error) {
	switch strings.ToLower(string(text)) {
	case "null":
		return number{}, nil
	case "nan", "inf", "+inf", "-inf", "infinity", "+infinity", "-infinity":
		return number{why: NotANumber}, nil
	}
	return number{}, errNotDecimal
}

// times returns the number in units of which one has unit, rounded to the nearest.
func (n number) times(unit int64) (int64, error) {
	high, low := bits.Mul64(n.mantissa, uint64(unit))
	for e := n.exponent; e > 0 && high|low != 0; e-- {
		carry, l := bits.Mul64(low, 10)
		over, h := bits.Mul64(high, 10)
		if over != 0 || h+carry < h {
			return 0, errTooLarge
		}
		high, low = h+carry, l
	}
	for e := -n.exponent; e > 0 && high|low != 0; {
		step := min(e, 19)
		e -= step
		high, low = divide(high, low, pow10[step], e == 0)
	}
	if high != 0 || low > math.MaxInt64 {
		return 0, errTooLarge
	}
	return int64(low), nil
}

// divide returns a number of 128 bits divided by d, rounded down or to the nearest.
func divide(high, low, d uint64, nearest bool) (uint64, uint64) {
	h, rest := high/d, high%d
	l, rest := bits.Div64(rest, low, d)
	if nearest && rest >= d-rest {
		var carry uint64
		l, carry = bits.Add64(l, 1, 0)
		h += carry
	}
	return h, l
}

var pow10 = func() (p [20]uint64) {
	p[0] = 1
	for i := 1; i < len(p); i++ {
		p[i] = p[i-1] * 10
	}
	return p
}()

type amount struct {
	value int64
	why   Reason // kept, or why there is no value
}

// amountOf reads a column in units of which one has unit of the planner's units. A shift
// of 2 means that the column is in hundredths.
func amountOf(column string, text []byte, unit int64, shift int) (amount, error) {
	n, err := parseNumber(text)
	a := amount{why: n.why}
	if err == nil && n.why == kept {
		n.exponent -= shift
		a.value, err = n.times(unit)
	}
	if err != nil {
		return amount{}, inColumn(column, text, err)
	}
	return a, nil
}

func inColumn(column string, text []byte, err error) error {
	return fmt.Errorf("%s %q: %w", column, clip(text), err)
}

// request is what a row requests, and what becomes of it by the rule of the package.
type request struct {
	cluster.Resources
	why Reason
}

func requested(cpu, memory amount) request {
	r := cluster.Resources{CPU: cpu.value, Memory: memory.value}
	switch {
	case cpu.why != kept:
		return request{why: cpu.why}
	case memory.why != kept:
		return request{why: memory.why}
	case r == cluster.Resources{}:
		return request{why: NoRequest}
	case !r.Fits(cluster.MostRequested):
		return request{why: Beyond}
	}
	return request{Resources: r}
}

// whole reads a column that holds a whole number, such as a time or an identifier.
func whole(column string, text []byte) (int64, error) {
	n, err := strconv.ParseInt(string(text), 10, 64)
	switch {
	case errors.Is(err, strconv.ErrRange):
		return 0, inColumn(column, text, errTooLarge)
	case err != nil:
		return 0, inColumn(column, text, errors.New("want a whole number"))
	}
	return n, nil
}

// clip keeps messages short.
func clip(text []byte) []byte {
	if len(text) > 40 {
		return append(bytes.Clone(text[:40]), "…"...)
	}
	return text
}
