package plan

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
)

// means says what a scheme is.
var means = map[string]string{
	"kubernetes": "pods whole",
	"resize":     "its VMs resized, nothing moved",
	"hostlo":     "its containers moved, VMs dropped and shrunk",
	"spread":     "pods also bought several VMs for, then hostlo",
	"whole":      "best packing found of whole pods",
	"best":       "best packing found of containers",
}

// Text prints the result for people.
func (r Result) Text(w io.Writer) error {
	var text strings.Builder
	r.writeTotals(&text)
	r.writeSavings(&text)
	r.writeDistribution(&text)
	r.writeLargest(&text)
	for _, reading := range r.Traces {
		reading.write(&text)
	}
	_, err := io.WriteString(w, text.String())
	return err
}

func table(w io.Writer, write func(tw *tabwriter.Writer)) {
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	write(tw)
	_ = tw.Flush() // a strings.Builder takes everything
}

func (r Result) writeTotals(w *strings.Builder) {
	fmt.Fprintf(w, "%s, %s, %s on VMs of their own", plural(r.Users, "user"), plural(r.Pods, "pod"), plural(r.Contain, "container"))
	if r.Shard != nil {
		fmt.Fprintf(w, " (shard %d of %d)", r.Shard.Index, r.Shard.Of)
	}
	w.WriteString("\n")
	if r.LeftOut > 0 {
		fmt.Fprintf(w, "Left out: %s that no VM holds (oversize: %s), and with them %s who have no other\n",
			plural(r.LeftOut, "pod"), r.Settings.Oversize, plural(r.Nothing, "user"))
	}
	w.WriteString("\n")
	table(w, func(tw *tabwriter.Writer) {
		fmt.Fprintln(tw, "plan\t$/h\tagainst kubernetes\t")
		for _, scheme := range schemes {
			cost := *r.Cost.at(scheme)
			fmt.Fprintf(tw, "%s\t%s\t%s\t%s\n", scheme, cost, change(cost, r.Cost.Kubernetes), means[scheme])
		}
		fmt.Fprintf(tw, "bound\t%s\t%s\tno plan can cost less\n", r.Bound, change(r.Bound, r.Cost.Kubernetes))
	})
	fmt.Fprintf(w, "\nbest is %s above the bound; it is proved optimal for %d of %s.\n", percent(r.Gap), r.Proved, plural(r.Users, "user"))
	fmt.Fprintf(w, "Split over several VMs: %s by hostlo, %d by best.\n", plural(r.SplitH, "pod"), r.SplitB)
}

// change is how much a cost is above or below another.
func change(cost, of dollars) string {
	if of == 0 || cost == of {
		return "0 %"
	}
	return fmt.Sprintf("%+.2f %%", 100*ratio(cost-of, of))
}

func percent(x float64) string { return fmt.Sprintf("%.2f %%", 100*x) }

func plural(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

func (r Result) writeSavings(w *strings.Builder) {
	w.WriteString("\nUsers who save against kubernetes\n\n")
	table(w, func(tw *tabwriter.Writer) {
		fmt.Fprintln(tw, "plan\tusers\tof all\tmore than 5 %\tlargest part\tlargest sum")
		for _, scheme := range saving {
			s := r.Savings.at(scheme)
			fmt.Fprintf(tw, "%s\t%d\t%s\t%s\t%s\t%s $/h (%s)\n", scheme, s.Users, percent(share(s.Users, r.Users)),
				fmt.Sprintf("%d (%s)", s.Over5, percent(s.Over5Share)), percent(s.MaxRelative.Relative), s.MaxAbsolute.Saved, percent(s.MaxAbsolute.Relative))
		}
	})
}

func share(n, of int) float64 {
	if of == 0 {
		return 0
	}
	return float64(n) / float64(of)
}

func (r Result) writeDistribution(w *strings.Builder) {
	w.WriteString("\nUsers by what they save\n\n")
	table(w, func(tw *tabwriter.Writer) {
		fmt.Fprintln(tw, "saved\t"+strings.Join(saving, "\t"))
		for i := range r.lastBin() + 1 {
			fmt.Fprint(tw, r.Savings.Hostlo.Distribution[i].name())
			for _, scheme := range saving {
				fmt.Fprintf(tw, "\t%d", r.Savings.at(scheme).Distribution[i].Users)
			}
			fmt.Fprintln(tw)
		}
	})
}

// lastBin returns the last bin in which there is anyone.
func (r Result) lastBin() int {
	last := 1
	for _, scheme := range saving {
		for i, b := range r.Savings.at(scheme).Distribution {
			if b.Users > 0 {
				last = max(last, i)
			}
		}
	}
	return last
}

func (b Bin) name() string {
	if b.To == 0 {
		return "nothing"
	}
	return fmt.Sprintf("%.0f-%.0f %%", 100*b.From, 100*b.To)
}

func (r Result) writeLargest(w *strings.Builder) {
	if len(r.Largest) == 0 {
		return
	}
	fmt.Fprintf(w, "\nLargest savings with hostlo, $/h\n\n")
	table(w, func(tw *tabwriter.Writer) {
		fmt.Fprintln(tw, "user\tkubernetes\thostlo\tsaved\tpart\tbest\tpods split")
		for _, u := range r.Largest {
			fmt.Fprintf(tw, "%s\t%s\t%s\t%s\t%s\t%s\t%d of %d\n", u.Name, u.Cost.Kubernetes, u.Cost.Hostlo,
				u.saved("hostlo"), percent(u.part("hostlo")), u.Cost.Best, u.SplitHostlo, u.Pods)
		}
	})
}

func (r Reading) write(w *strings.Builder) {
	fmt.Fprintf(w, "\nRead %s", r.Format)
	if r.Files > 0 {
		fmt.Fprintf(w, ": %s, %s, %d kept: %s, %s, %s", plural(r.Files, "file"), plural(r.Rows, "row"), r.Kept,
			plural(r.Users, "user"), plural(r.Pods, "pod"), plural(r.Containers, "container"))
	}
	w.WriteString("\n")
	for _, e := range r.Excluded {
		fmt.Fprintf(w, "  excluded %d: %s\n", e.Rows, e.Why)
	}
	for _, n := range r.Notes {
		fmt.Fprintf(w, "  kept %d: %s\n", n.Rows, n.Why)
	}
	if r.Unread > 0 {
		fmt.Fprintf(w, "  not read: %s after the period\n", plural(r.Unread, "file"))
	}
	if r.Broken > 0 {
		fmt.Fprintf(w, "  broken: %s\n", plural(r.Broken, "row"))
	}
	for _, example := range r.Examples {
		fmt.Fprintf(w, "    %s\n", example)
	}
}
