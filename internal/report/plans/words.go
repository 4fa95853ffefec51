package plans

import (
	"fmt"
	"strconv"
	"time"

	"unnest.io/unnest/internal/plan/cluster"
	"unnest.io/unnest/internal/plan/summary"
	"unnest.io/unnest/internal/report/document"
)

// userWords says how much was planned.
func userWords(users, pods, containers int) string {
	return fmt.Sprintf("%s, %s, %s. Each user has VMs of their own.", document.Plural(users, "user"), document.Plural(pods, "pod"), document.Plural(containers, "container"))
}

// costChange is how much a cost is above or below another.
func costChange(cost, of summary.Dollars) string {
	if of == 0 || cost == of {
		return "0 %"
	}
	return fmt.Sprintf("%+.2f %%", 100*summary.Ratio(cost-of, of))
}

// fraction prints a fraction as a percentage with two decimals.
func fraction(x float64) string { return fmt.Sprintf("%.2f %%", 100*x) }

func share(n, of int) float64 {
	if of == 0 {
		return 0
	}
	return float64(n) / float64(of)
}

// significant prints x with four digits.
func significant(x float64) string { return strconv.FormatFloat(x, 'g', 4, 64) }

func inDollars(d summary.Dollars) document.Number { return document.Number(d) / cluster.Dollar }

// exactDollars prints a cost with all its decimals.
func exactDollars(d summary.Dollars) string {
	text, _ := d.MarshalJSON() // never fails
	return string(text)
}

// duration prints seconds as "1h30m0s".
func duration(seconds float64) string {
	return time.Duration(seconds * float64(time.Second)).Round(time.Second).String()
}
