package bench

import (
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"

	"unnest.io/unnest/internal/cli/document"
	"unnest.io/unnest/internal/measure/experiment"
	page "unnest.io/unnest/internal/report/document"
	"unnest.io/unnest/internal/report/render/html"
	"unnest.io/unnest/internal/report/render/text"
)

const reportFile = "report.html"

func writeReport(path string, doc page.Document) error {
	return document.WriteFile(path, func(w io.Writer) error { return html.Print(w, doc) })
}

// firstReport prints and writes the report of a run that has its least number of blocks and goes on
// for precision, so that nobody has to wait for the end.
type firstReport struct {
	*progress
	path string // of the run directory
	done bool
}

// Report shows the event. It runs between two executions, so that it disturbs none.
func (r *firstReport) Report(e experiment.Event) {
	if e.Kind == experiment.Extended && !r.done {
		r.done = true
		r.note(r.write())
	}
	r.progress.Report(e)
}

func (r *firstReport) write() string {
	var out strings.Builder
	input, notes, err := document.Load(r.path)
	path := filepath.Join(r.path, reportFile)
	if err == nil {
		doc := document.Build(input, notes)
		err = errors.Join(text.Print(&out, doc, text.Options{Width: r.width, Brief: true}), writeReport(path, doc))
	}
	if err != nil {
		return fmt.Sprintf("write first report: %v", err)
	}
	return fmt.Sprintf("first report, also %s:\n\n%s\nfurther blocks make it more precise; Ctrl-C keeps it", path, &out)
}
