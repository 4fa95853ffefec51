// Package document is what the commands that print reports have in common: they
// read run directories and send one document to the terminal or to a file.
//
// What a document says belongs to package report of the house, what a run
// directory holds to package result.
package document

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	"unnest/internal/measure/result"
	"unnest/internal/report"
)

// Load reads the run directory dir; a run still being written is read as far as
// it has come. The notes say what is missing of its journal.
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
		return report.Input{}, nil, fmt.Errorf("read run %s: not a run directory, it lacks %s or %s: name one that unnest bench has written",
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
