package summary

import (
	"fmt"
	"math"
	"math/big"
	"strings"

	"unnest.io/unnest/internal/plan/cluster"
)

// Dollars are billionths of a dollar. In JSON they are a decimal number of dollars
// that loses nothing.
type Dollars int64

// Ratio returns a/b, 0 when b is 0.
func Ratio(a, b Dollars) float64 {
	if b == 0 {
		return 0
	}
	return float64(a) / float64(b)
}

// MarshalJSON writes all decimals that are not zero.
func (d Dollars) MarshalJSON() ([]byte, error) {
	sign, n := "", uint64(d)
	if d < 0 {
		sign, n = "-", -n
	}
	text := fmt.Sprintf("%s%d.%09d", sign, n/cluster.Dollar, n%cluster.Dollar)
	return []byte(strings.TrimSuffix(strings.TrimRight(text, "0"), ".")), nil
}

// UnmarshalJSON reads a number with at most nine decimals.
func (d *Dollars) UnmarshalJSON(data []byte) error {
	r, ok := new(big.Rat).SetString(string(data))
	if !ok {
		return fmt.Errorf("dollars %s: want a number", data)
	}
	r.Mul(r, big.NewRat(cluster.Dollar, 1))
	if !r.IsInt() || !r.Num().IsInt64() {
		return fmt.Errorf("dollars %s: want a number with at most nine decimals", data)
	}
	*d = Dollars(r.Num().Int64())
	return nil
}

// String returns the dollars rounded to a tenth of a cent.
func (d Dollars) String() string {
	return fmt.Sprintf("%.3f", math.Round(float64(d)/1e6)/1e3)
}
