package rundir

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"unnest.io/unnest/internal/measure/result"
)

// Load reads the run directory path without locking it, so the run may be in progress. It
// leaves out an incomplete execution.
func Load(path string) (result.Run, []result.Sample, error) {
	run, journal, err := Read(path)
	return run, journal.Samples, err
}

// Read reads the run directory path as Load does, and also what the run discarded. It returns an error
// that names the file if a sample cannot belong to the run, see result.Run.Check.
func Read(path string) (result.Run, result.Journal, error) { return read(path, os.ReadFile) }

// ReadFS reads the run directory path of a file system as Read does.
func ReadFS(files fs.FS, path string) (result.Run, result.Journal, error) {
	return read(path, func(name string) ([]byte, error) { return fs.ReadFile(files, name) })
}

// ReadRun reads what the run directory path says about its run, without its samples.
func ReadRun(path string) (result.Run, error) { return readRun(path, os.ReadFile) }

func readRun(path string, file func(name string) ([]byte, error)) (run result.Run, _ error) {
	name := filepath.Join(path, RunFile)
	data, err := file(name)
	if err != nil {
		return run, fmt.Errorf("read run directory: %w", err)
	}
	if err := json.Unmarshal(data, &run); err != nil {
		return run, fmt.Errorf("parse %s: %w", name, err)
	}
	return run, nil
}

func read(path string, file func(name string) ([]byte, error)) (result.Run, result.Journal, error) {
	run, err := readRun(path, file)
	if err != nil {
		return result.Run{}, result.Journal{}, err
	}
	journal, err := readJournal(path, file)
	if err == nil {
		if err = run.Check(journal); err != nil {
			err = fmt.Errorf("read run directory %s: %w", path, err)
		}
	}
	return run, journal, err
}

// readJournal reads the journal of the run directory path, plain or compressed. A directory
// with both is an error.
func readJournal(path string, file func(name string) ([]byte, error)) (result.Journal, error) {
	plain, compressed := filepath.Join(path, SamplesFile), filepath.Join(path, CompressedFile)
	data, err := file(plain)
	packed, errPacked := file(compressed)
	switch {
	case err == nil && errPacked == nil:
		return result.Journal{}, fmt.Errorf("read journal: %s has both %s and %s: remove one", path, SamplesFile, CompressedFile)
	case err == nil:
		return result.ParseJournal(plain, data)
	case !errors.Is(err, fs.ErrNotExist) || errors.Is(errPacked, fs.ErrNotExist):
		return result.Journal{}, fmt.Errorf("read journal: %w", err)
	case errPacked != nil:
		return result.Journal{}, fmt.Errorf("read journal: %w", errPacked)
	}
	if data, err = decompress(packed); err != nil {
		return result.Journal{}, fmt.Errorf("decompress %s: %w", compressed, err)
	}
	return result.ParseJournal(compressed, data)
}

// decompress returns what gzip has compressed to data.
func decompress(data []byte) ([]byte, error) {
	r, err := gzip.NewReader(bytes.NewReader(data))
	if err != nil {
		return nil, err
	}
	return io.ReadAll(r)
}
