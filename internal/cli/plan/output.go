package plan

import (
	"cmp"
	"errors"
	"io"

	"github.com/spf13/cobra"

	"unnest/internal/cli/document"
	"unnest/internal/cli/terminal"
	"unnest/internal/plan/cluster"
	"unnest/internal/plan/pack"
	"unnest/internal/plan/summary"
	page "unnest/internal/report/document"
	"unnest/internal/report/render/html"
)

// Output says how a plan is printed and where to.
type Output struct {
	document.Output
	HTML string // a second file, for a page
}

func (o *Output) addFlags(cmd *cobra.Command) {
	o.AddFlags(cmd)
	o.AddJSONFlag(cmd, "print JSON, with every user")
	cmd.Flags().StringVar(&o.HTML, "html", "", "also write a page with charts to `FILE`")
}

// check returns an error unless the format is known and the directories of the files
// exist: planning may take long.
func (o Output) check() error { return errors.Join(o.Check(), document.CheckFile(o.HTML)) }

// write prints doc, and its page if there is one.
func (o Output) write(streams terminal.Streams, doc page.Document) error {
	if o.HTML != "" {
		if err := document.WriteFile(o.HTML, func(w io.Writer) error { return html.Print(w, doc) }); err != nil {
			return err
		}
	}
	return o.Print(streams, doc)
}

func newSettings(opts Options, s setting) summary.Settings {
	settings := summary.Settings{
		At: opts.At, Oversize: cmp.Or(string(s.plan.Oversize), string(pack.Drop)), Moving: cmp.Or(string(s.plan.Moving), string(pack.MoveByVM)),
		Emptying: cmp.Or(string(s.plan.Emptying), string(pack.MostWastedFirst)), Requested: cmp.Or(string(s.plan.Requested), string(pack.OfVM)),
		Wasted: cmp.Or(string(s.plan.Wasted), string(pack.OfVM)), Rounds: s.plan.Rounds, Effort: s.plan.Effort, Host: opts.Host,
	}
	if s.today == nil { // else the cluster names them
		settings.Catalogues = catalogueNames(opts)
		settings.Prices, settings.Term, settings.KubeReserved = priceDates(settings.Catalogues), opts.Term, cmp.Or(opts.KubeReserved, "none")
	}
	if s.trace.OwnerLabel != "" {
		settings.Owner = opts.Owner
	}
	for _, m := range s.catalogue {
		settings.Catalogue = append(settings.Catalogue, summary.Model{
			Name: m.Name, VCPU: float64(m.Size.CPU) / cluster.VCPU, GiB: float64(m.Size.Memory) / (1 << 30), Price: summary.Dollars(m.Price), Pods: m.Pods, Arch: m.Arch,
		})
	}
	return settings
}
