// Package document reads run directories and prints documents to the terminal or a file,
// for the commands that print reports.
//
// Building documents belongs to the packages of report, the format of run directories to package
// result.
package document

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	"unnest.io/unnest/internal/measure/noise"
	"unnest.io/unnest/internal/measure/rundir"
	"unnest.io/unnest/internal/report/document"
	"unnest.io/unnest/internal/report/papers"
	"unnest.io/unnest/internal/report/provenance"
	"unnest.io/unnest/internal/report/runs"
)

// Load reads the run directory dir, also of a run that is still being written. The notes
// say what is missing of its journal, and which values are far apart in time.
func Load(dir string) (input provenance.Source, notes []string, err error) {
	info, err := os.Stat(dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return provenance.Source{}, nil, fmt.Errorf("read run %s: no such directory: unnest runs lists those that are in runs", dir)
	case err != nil:
		return provenance.Source{}, nil, fmt.Errorf("read run: %w", err)
	case !info.IsDir():
		return provenance.Source{}, nil, fmt.Errorf("read run %s: not a directory: name the directory of the run", dir)
	}
	run, journal, err := rundir.Read(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return provenance.Source{}, nil, fmt.Errorf("read run %s: not a run directory: it lacks %s or %s; name a directory that unnest bench has written",
			dir, rundir.RunFile, rundir.SamplesFile)
	}
	if err != nil {
		return provenance.Source{}, nil, err
	}
	if journal.Dropped != "" {
		notes = []string{journal.Dropped}
	}
	if cases := journal.Apart(); len(cases) > 0 {
		notes = append(notes, fmt.Sprintf("In %s, more than five minutes passed between executions of one block, as when a run is resumed: "+
			"ratios contain what changed meanwhile.", document.List(cases)))
	}
	return provenance.Source{Dir: dir, Run: run, Samples: noise.Select(journal)}, notes, nil
}

// Build makes the report of a run that Load has read, next to the figures that papers
// print.
func Build(input provenance.Source, notes []string) document.Document {
	return runs.Build(input.Run, input.Samples, runs.Options{Dir: input.Dir, Notes: notes, Papers: papers.All()})
}
