package plan

import (
	"errors"

	"github.com/spf13/cobra"

	"unnest.io/unnest/internal/cli/document"
	"unnest.io/unnest/internal/cli/terminal"
	"unnest.io/unnest/internal/cli/usage"
	page "unnest.io/unnest/internal/report/document"
	"unnest.io/unnest/internal/report/render"
)

// Output says how a plan is printed and where to.
type Output struct {
	Format string   // a name of render.Formats; empty: by the extension of each file, else text
	JSON   bool     // the same as Format json
	Files  []string // none: standard output
}

func (o *Output) addFlags(cmd *cobra.Command) {
	var names []string
	for _, f := range render.Formats {
		names = append(names, f.Name)
	}
	f := cmd.Flags()
	f.VarP(usage.Choice(&o.Format, names...), "format", "f", "output format (default: by the extension of --output, else text)")
	f.StringArrayVarP(&o.Files, "output", "o", nil, "write to `FILE` instead of standard output; may be repeated, such as -o plan.json -o plan.html; a failed write changes nothing")
	f.BoolVar(&o.JSON, "json", false, "print JSON, with every user")
	cmd.MarkFlagsMutuallyExclusive("json", "format")
}

// each returns an output for each file, or that for standard output.
func (o Output) each() (all []document.Output) {
	for _, file := range o.Files {
		all = append(all, document.Output{Format: o.Format, JSON: o.JSON, File: file})
	}
	if len(all) == 0 {
		all = []document.Output{{Format: o.Format, JSON: o.JSON}}
	}
	return all
}

// check returns an error unless the formats are known and the directories of the files
// exist: planning may take long.
func (o Output) check() error {
	if len(o.Files) > 1 && (o.JSON || o.Format != "") {
		return usage.Errorf("--json and --format with several --output: the extension of each file chooses its format: omit them")
	}
	var errs []error
	for _, one := range o.each() {
		errs = append(errs, one.Check())
	}
	return errors.Join(errs...)
}

// write prints doc.
func (o Output) write(streams terminal.Streams, doc page.Document) error {
	for _, one := range o.each() {
		if err := one.Print(streams, doc); err != nil {
			return err
		}
	}
	return nil
}
