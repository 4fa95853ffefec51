package rundir

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"

	"unnest/internal/measure/result"
)

// Load reads the run directory path without locking it, so the run may be in progress. It
// leaves out an incomplete execution.
func Load(path string) (result.Run, []result.Sample, error) {
	run, journal, err := read(path)
	return run, journal.Samples, err
}

// LoadJournal reads the journal of the run directory path.
func LoadJournal(path string) (result.Journal, error) {
	name := filepath.Join(path, SamplesFile)
	data, err := os.ReadFile(name)
	if err != nil {
		return result.Journal{}, fmt.Errorf("read journal: %w", err)
	}
	return result.ParseJournal(name, data)
}

// read reads run.json and the journal.
func read(path string) (result.Run, result.Journal, error) {
	name := filepath.Join(path, RunFile)
	data, err := os.ReadFile(name)
	if err != nil {
		return result.Run{}, result.Journal{}, fmt.Errorf("read run directory: %w", err)
	}
	var run result.Run
	if err := json.Unmarshal(data, &run); err != nil {
		return result.Run{}, result.Journal{}, fmt.Errorf("parse %s: %w", name, err)
	}
	journal, err := LoadJournal(path)
	return run, journal, err
}
