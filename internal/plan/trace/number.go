package trace

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"math/bits"
	"strings"

	"unnest/internal/plan/cluster"
)

// number is a decimal as written: mantissa × 10^exponent. Requests are whole numbers
// of small units, and a float64 on the way would make equal requests unequal.
type number struct {
	mantissa uint64
	exponent int
	why      Reason // kept, Negative or NotANumber
}

var (
	errNotDecimal = errors.New("is no decimal number")
	errTooLarge   = errors.New("is too large")
)

// parseNumber reads a decimal with an optional sign, point and exponent. Nothing,
// and the words null and NULL, are zero.
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

// digits reads digits with at most one point, and reports whether there were any.
// Digits beyond the nineteenth only count for the size.
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

// exponent reads what follows the e.
func exponent(text []byte) (int, bool) {
	sign := 1
	if len(text) > 0 && (text[0] == '-' || text[0] == '+') {
		if text[0] == '-' {
			sign = -1
		}
		text = text[1:]
	}
	e := 0
	for _, c := range text {
		if c < '0' || c > '9' {
			return 0, false
		}
		e = min(e*10+int(c-'0'), 10_000)
	}
	return sign * e, len(text) > 0
}

// word reads what stands for a number without being one.
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

// amount is one dimension of a request.
type amount struct {
	value int64
	why   Reason // kept, or why it is none
}

// amountOf reads a column whose unit has so many of plan's units. Percent is
// written as a unit with a shift of 2.
func amountOf(column string, text []byte, unit int64, shift int) (amount, error) {
	n, err := parseNumber(text)
	if err == nil && n.why == kept {
		n.exponent -= shift
		var value int64
		if value, err = n.times(unit); err == nil {
			return amount{value: value}, nil
		}
	}
	if err != nil {
		return amount{}, fmt.Errorf("%s %q %w", column, clip(text), err)
	}
	return amount{why: n.why}, nil
}

// request is what a row asks for, and what becomes of it by the rule of the package.
type request struct {
	cluster.Resources
	why Reason
}

func (o *Options) request(cpu, memory amount) request {
	switch {
	case cpu.why != kept:
		return request{why: cpu.why}
	case memory.why != kept:
		return request{why: memory.why}
	case cpu.value == 0 && memory.value == 0 && !o.KeepEmpty:
		return request{why: NoRequest}
	}
	r := cluster.Resources{CPU: cpu.value, Memory: memory.value}
	if !r.Fits(most) {
		return request{why: Beyond}
	}
	return request{Resources: r}
}

// most is what no machine has, and with which sums stay far from overflow.
var most = cluster.Resources{CPU: 1e6 * cluster.VCPU, Memory: 1 << 50}

// take counts a row with a request, and notes if half of it is missing. It reports
// whether the row is kept.
func (r *Report) take(q request) bool {
	r.row(q.why)
	r.note(q)
	return q.why == kept
}

func (r *Report) note(q request) {
	if q.why != kept {
		return
	}
	if q.CPU == 0 {
		r.notes[NoCPU]++
	}
	if q.Memory == 0 {
		r.notes[NoMemory]++
	}
}

// whole reads a column that is a whole number, such as a time or an identifier.
func whole(column string, text []byte) (int64, error) {
	negative := len(text) > 0 && text[0] == '-'
	digits := text
	if negative {
		digits = text[1:]
	}
	if len(digits) == 0 || len(digits) > 19 {
		return 0, fmt.Errorf("%s %q is no whole number", column, clip(text))
	}
	var n uint64
	for _, c := range digits {
		if c < '0' || c > '9' {
			return 0, fmt.Errorf("%s %q is no whole number", column, clip(text))
		}
		n = n*10 + uint64(c-'0')
	}
	if n > math.MaxInt64 {
		return 0, fmt.Errorf("%s %q is too large", column, clip(text))
	}
	if negative {
		return -int64(n), nil
	}
	return int64(n), nil
}

// clip keeps messages short.
func clip(text []byte) []byte {
	if len(text) > 40 {
		return append(bytes.Clone(text[:40]), "…"...)
	}
	return text
}
