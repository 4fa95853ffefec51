package plan

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
)

// Text prints the frontier for people.
func (f Frontier) Text(w io.Writer) error {
	var text strings.Builder
	fmt.Fprintf(&text, "%s, %s, %s on VMs of their own\n", plural(f.Users, "user"), plural(f.Pods, "pod"), plural(f.Contain, "container"))
	if f.LeftOut > 0 {
		fmt.Fprintf(&text, "Left out: %s that no VM holds (oversize: %s)\n", plural(f.LeftOut, "pod"), f.Setup.Oversize)
	}
	fmt.Fprintf(&text, "Links: %s\n\n", f.Links)
	table(&text, func(tw *tabwriter.Writer) {
		fmt.Fprintln(tw, "worth it up to\t$/h\tagainst nothing cut\tcut\tusers who cut")
		for _, p := range f.Shown() {
			fmt.Fprintf(tw, "%s\t%s\t%s\t%s\t%d\n", p.UpTo(), p.Cost, change(p.Cost, f.Whole), weight(p.Cut), p.Users)
		}
	})
	text.WriteString("\nWorth it up to: the price of a unit of weight, in $/h, up to which the last that is cut saves more than that.\n")
	f.writePriced(&text)
	f.writeSavers(&text)
	for _, reading := range f.Traces {
		reading.write(&text)
	}
	_, err := io.WriteString(w, text.String())
	return err
}

// JSON prints the frontier.
func (f Frontier) JSON(w io.Writer) error { return printJSON(w, f) }

// String says what talks.
func (l LinkUse) String() string {
	switch {
	case l.Pairs > 0:
		return fmt.Sprintf("every two containers of a pod, by a weight of %s", weight(l.Pairs))
	case l.Rows > 0:
		return fmt.Sprintf("%s of %s, of which %d are of pods that the trace does not have, or not any more", plural(l.Rows, "row"), l.From, l.Unused)
	}
	return "annotations of the pods"
}

// weight words a weight, or a price of one, in four digits.
func weight(x float64) string { return strconv.FormatFloat(x, 'g', 4, 64) }

// UpTo is the price of the point; nothing cut has none.
func (p Point) UpTo() string {
	if p.Users == 0 {
		return "nothing cut"
	}
	return weight(p.Price)
}

// Shown returns at most about a dozen points: nothing cut, the first of each tenth of
// what can be saved, and the last.
func (f Frontier) Shown() []Point {
	last := f.Total[len(f.Total)-1]
	shown := f.Total[:1:1]
	tenth := dollars(1)
	for _, p := range f.Total[1:] {
		if p == last {
			break
		}
		if saved := f.Whole - p.Cost; 10*saved >= tenth*(f.Whole-last.Cost) {
			shown = append(shown, p)
			tenth = 10*saved/(f.Whole-last.Cost) + 1
		}
	}
	if len(f.Total) > 1 {
		shown = append(shown, last)
	}
	return shown
}

// writePriced tells where the price of a cut is from, and what follows from it.
func (f Frontier) writePriced(w *strings.Builder) {
	if f.Price == nil {
		return
	}
	fmt.Fprintf(w, "\n%s\n\n", f.Price.Measured())
	table(w, func(tw *tabwriter.Writer) {
		fmt.Fprintf(tw, "case\t%s\t%s\tratio\t95 %%\tblocks\n", sameNode, throughHostlo)
		for _, c := range f.Price.Latency.Cases {
			fmt.Fprintf(tw, "%s\t%s %s\t%s %s\t%.2f\t%s\t%d\n", c.Case, weight(c.SameNode), c.Unit, weight(c.Hostlo), c.Unit, c.Ratio, c.Interval(), c.Blocks)
		}
	})
	fmt.Fprintf(w, "\n%s\n%s\n", f.Price.Derived(), f.AtPrice())
}

// Interval words the interval of the ratio.
func (c CaseLatency) Interval() string {
	if c.High == 0 {
		return "too few blocks"
	}
	return fmt.Sprintf("%.2f-%.2f", c.Low, c.High)
}

// Measured says what was measured where.
func (p CutPrice) Measured() string {
	of := "in " + plural(len(p.Latency.Cases), "case")
	if len(p.Latency.Cases) > 1 {
		of += ", as their geometric mean"
	}
	return fmt.Sprintf("Measured in %s (run %s, %s, accelerator %s): a message takes %.3f times as long through %s as in %s, %s",
		p.Latency.Directory, p.Latency.Run, p.Latency.State, cmp.Or(p.Latency.Accelerator, "unknown"), p.Latency.Ratio, throughHostlo, sameNode, of)
}

// Derived says how the price follows from the ratio.
func (p CutPrice) Derived() string {
	if p.Latency.Ratio <= 1 {
		return "Hostlo is not slower, so a cut costs nothing."
	}
	return fmt.Sprintf("A link of weight 1 keeps %s vCPU busy or waiting within a VM, and %.3f times that when it is cut. At %s $ for a vCPU and hour the difference is %s $/h.",
		weight(p.LinkCPU), p.Latency.Ratio, weight(float64(p.VCPU)/1e9), weight(p.Price))
}

// AtPrice says what users pay when cuts cost that.
func (f Frontier) AtPrice() string {
	sum := f.Priced.Cost + f.Priced.Talking
	return fmt.Sprintf("At that price %s cut a weight of %s in %s: VMs for %s $/h and talking for %s $/h, together %s against nothing cut.",
		plural(f.Priced.Users, "user"), weight(f.Priced.Cut), plural(f.Priced.Split, "split pod"), f.Priced.Cost, f.Priced.Talking, change(sum, f.Whole))
}

// savers returns the users who can save most by cutting, those first.
func (f Frontier) savers() []Choices {
	var savers []Choices
	for _, u := range f.PerUser {
		if u.Saved() > 0 {
			savers = append(savers, u)
		}
	}
	slices.SortStableFunc(savers, func(a, b Choices) int { return cmp.Compare(b.Saved(), a.Saved()) })
	return savers[:min(len(savers), mostShown)]
}

// Savers returns them for the page.
func (f Frontier) Savers() []Choices { return f.savers() }

// Saved returns what the cheapest choice saves against cutting nothing.
func (c Choices) Saved() dollars {
	if len(c.Choices) == 0 {
		return 0
	}
	return c.Whole().Cost - c.Cheapest().Cost
}

// Whole returns the choice that cuts nothing.
func (c Choices) Whole() Choice { return c.Choices[len(c.Choices)-1] }

// Cheapest returns the cheapest choice.
func (c Choices) Cheapest() Choice { return c.Choices[0] }

func (f Frontier) writeSavers(w *strings.Builder) {
	savers := f.savers()
	if len(savers) == 0 {
		return
	}
	w.WriteString("\nUsers who can save most by cutting, $/h\n\n")
	table(w, func(tw *tabwriter.Writer) {
		fmt.Fprintln(tw, "user\tnothing cut\tcheapest\tsaved\tcut\tpods split\tchoices")
		for _, u := range savers {
			c := u.Cheapest()
			fmt.Fprintf(tw, "%s\t%s\t%s\t%s\t%s\t%d of %d\t%d\n", u.User, u.Whole().Cost, c.Cost, u.Saved(), weight(c.Cut), c.Split, u.Pods, len(u.Choices))
		}
	})
}

// frontierPage is what the template sees.
type frontierPage struct {
	Frontier
	Curve chart
}

// HTML prints the frontier as one file that needs no other, and no JavaScript.
func (f Frontier) HTML(w io.Writer) error {
	return printPage(w, "frontier.html.tmpl", frontierPage{f, f.curve()})
}

// curve draws the cost of all users, in parts of that with nothing cut, over the part
// of the most weight that is cut.
func (f Frontier) curve() chart {
	c := chart{Width: chartWidth + chartRight, Height: chartHeight, Bottom: chartBottom}
	last := f.Total[len(f.Total)-1]
	low := 1.0
	if f.Whole > 0 {
		low = ratio(last.Cost, f.Whole)
	}
	spread := max(1-low, 1e-9)
	at := func(cut, cost float64) (x, y float64) {
		return chartLeft + (chartWidth-chartLeft)*cut, chartBottom - (chartBottom-chartTop)*(cost-low)/spread
	}
	var points strings.Builder
	for _, p := range f.Total {
		cut, cost := 0.0, 1.0
		if last.Cut > 0 {
			cut, cost = p.Cut/last.Cut, ratio(p.Cost, f.Whole)
		}
		x, y := at(cut, cost)
		fmt.Fprintf(&points, "%.1f,%.1f ", x, y)
	}
	c.Lines = []line{{strings.TrimSpace(points.String()), "best"}}
	for i := range 5 {
		x, _ := at(float64(i)/4, 0)
		c.Ticks = append(c.Ticks, mark{X: x, Y: chartBottom + 18, Text: weight(last.Cut * float64(i) / 4)})
	}
	for _, cost := range []float64{1, (1 + low) / 2} {
		_, y := at(0, cost)
		c.Levels = append(c.Levels, mark{X: chartLeft, Y: y, Text: fmt.Sprintf("%.1f %%", 100*cost)})
	}
	return c
}
