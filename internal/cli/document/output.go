package document

import (
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"unnest/internal/cli/terminal"
	"unnest/internal/cli/usage"
	"unnest/internal/report"
)

// Output says how a document is printed and where to.
type Output struct {
	Format string // a name of report.Formats; empty: by the extension of File, else text
	File   string // empty: standard output
}

// AddFlags gives cmd the flags --format and --output.
func (o *Output) AddFlags(cmd *cobra.Command) {
	var names []string
	for _, f := range report.Formats {
		names = append(names, f.Name)
	}
	cmd.Flags().VarP(usage.Choice(&o.Format, names...), "format", "f", "format of the output (default: by the extension of the file, else text)")
	cmd.Flags().StringVarP(&o.File, "output", "o", "", "write to `FILE`, whole or not at all, instead of standard output")
}

// Print prints doc. Text takes the width and the colours of the terminal.
func (o Output) Print(streams terminal.Streams, doc report.Document) error {
	format, err := o.format()
	if err != nil {
		return err
	}
	if o.File != "" {
		return WriteFile(o.File, func(w io.Writer) error { return format.Print(w, doc) })
	}
	if format.Name == "text" {
		err = report.Text(streams.Out, doc, report.TextOptions{Width: streams.OutWidth, Colour: streams.Colour})
	} else {
		err = format.Print(streams.Out, doc)
	}
	if err != nil {
		return fmt.Errorf("print report as %s: %w", format.Name, err)
	}
	return nil
}

// format returns the format asked for.
func (o Output) format() (report.Format, error) {
	if o.Format != "" {
		return report.FormatNamed(o.Format)
	}
	best, _ := report.FormatNamed("text")
	longest := ""
	for _, f := range report.Formats {
		if strings.HasSuffix(o.File, f.Extension) && len(f.Extension) > len(longest) {
			best, longest = f, f.Extension
		}
	}
	return best, nil
}
