package result

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
)

// Load reads the run directory path without locking it, so the run may be in progress. It
// leaves out an incomplete execution.
func Load(path string) (Run, []Sample, error) {
	run, journal, err := read(path)
	return run, journal.Samples, err
}

// LoadJournal reads the journal of the run directory path.
func LoadJournal(path string) (Journal, error) {
	name := filepath.Join(path, SamplesFile)
	data, err := os.ReadFile(name)
	if err != nil {
		return Journal{}, fmt.Errorf("read journal: %w", err)
	}
	return ParseJournal(name, data)
}

// read reads run.json and the journal.
func read(path string) (Run, Journal, error) {
	name := filepath.Join(path, RunFile)
	data, err := os.ReadFile(name)
	if err != nil {
		return Run{}, Journal{}, fmt.Errorf("read run directory: %w", err)
	}
	var run Run
	if err := json.Unmarshal(data, &run); err != nil {
		return Run{}, Journal{}, fmt.Errorf("parse %s: %w", name, err)
	}
	journal, err := LoadJournal(path)
	return run, journal, err
}
