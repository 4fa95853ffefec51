// Package document reads run directories and prints documents to the terminal or a file,
// for the commands that print reports.
//
// Building documents belongs to package report, the format of run directories to package
// result.
package document

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	"unnest/internal/measure/result"
	"unnest/internal/report"
)

// Load reads the run directory dir, also of a run that is still being written. The notes
// say what is missing of its journal.
func Load(dir string) (input report.Input, notes []string, err error) {
	info, err := os.Stat(dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return report.Input{}, nil, fmt.Errorf("read run %s: no such directory", dir)
	case err != nil:
		return report.Input{}, nil, fmt.Errorf("read run: %w", err)
	case !info.IsDir():
		return report.Input{}, nil, fmt.Errorf("read run %s: not a directory: name the directory of the run", dir)
	}
	run, _, err := result.Load(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return report.Input{}, nil, fmt.Errorf("read run %s: not a run directory: it lacks %s or %s; name a directory that unnest bench has written",
			dir, result.RunFile, result.SamplesFile)
	}
	if err != nil {
		return report.Input{}, nil, err
	}
	journal, err := result.LoadJournal(dir)
	if err != nil {
		return report.Input{}, nil, err
	}
	if journal.Dropped != "" {
		notes = []string{journal.Dropped}
	}
	return report.Input{Dir: dir, Run: run, Samples: journal.Samples}, notes, nil
}

// Build makes the report of a run that Load has read, next to the figures that papers
// print.
func Build(input report.Input, notes []string) report.Document {
	return report.Build(input.Run, input.Samples, report.Options{Dir: input.Dir, Notes: notes, Papers: report.AllPapers()})
}
