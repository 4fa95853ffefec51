// Package rundir reads and writes run directories: the provenance of a run (run.json) and its
// samples (samples.jsonl, an append-only journal, or samples.jsonl.gz once the run is published).
//
// Package result has the values and the format of the journal.
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
	"slices"

	"golang.org/x/sys/unix"

	"unnest.io/unnest/internal/measure/result"
)

// The files of a run directory.
const (
	RunFile        = "run.json"         // the result.Run
	SamplesFile    = "samples.jsonl"    // the journal
	CompressedFile = "samples.jsonl.gz" // the journal in its place, compressed by gzip, only to be read
)

// Reasons why a run directory cannot be used.
var (
	ErrHoldsRun = errors.New("directory already holds a run")
	ErrLocked   = errors.New("another process is writing this run")
)

// Dir is a run directory that is open for writing and locked. It is not safe for
// concurrent use.
type Dir struct {
	path    string
	run     result.Run
	journal *os.File       // holds the lock
	content result.Journal // of journal
	broken  error          // why the journal can no longer be appended to
}

// Create creates the run directory path, with its parents, and writes run to it. It
// returns ErrHoldsRun if path holds a run already, and ErrLocked if another process has
// just created one.
func Create(path string, run result.Run) (*Dir, error) {
	if err := os.MkdirAll(path, 0o755); err != nil {
		return nil, fmt.Errorf("create run directory: %w", err)
	}
	if compressed(path) {
		return nil, fmt.Errorf("create run in %s: %w: name another directory", path, ErrHoldsRun)
	}
	return lock(path, os.O_RDWR|os.O_CREATE, func(d *Dir) error {
		_, err := os.Stat(filepath.Join(d.path, RunFile))
		info, errJournal := d.journal.Stat()
		if errJournal != nil {
			return fmt.Errorf("create run directory: %w", errJournal)
		}
		if err == nil || info.Size() > 0 {
			return fmt.Errorf("create run in %s: %w: continue it with --resume, or name another directory", d.path, ErrHoldsRun)
		}
		run.Schema = result.Schema
		if err := d.writeRun(run); err != nil {
			return errors.Join(err, os.Remove(d.journal.Name()))
		}
		return nil
	})
}

// Open opens the run in the directory path to continue it. It truncates the journal after
// the last complete execution, see Dropped.
func Open(path string) (*Dir, error) {
	if compressed(path) {
		return nil, fmt.Errorf("open run directory %s: its samples are compressed: run gunzip %s", path, filepath.Join(path, CompressedFile))
	}
	return lock(path, os.O_RDWR, func(d *Dir) error {
		var err error
		if d.run, d.content, err = Read(d.path); err != nil {
			return err
		}
		if d.content.Dropped != "" {
			return d.cut(d.content.Size)
		}
		return nil
	})
}

func compressed(path string) bool {
	_, err := os.Stat(filepath.Join(path, CompressedFile))
	return err == nil
}

// lock opens and locks the journal, which is never replaced, unlike run.json, and calls
// init on the locked directory.
func lock(path string, flags int, init func(*Dir) error) (*Dir, error) {
	f, err := os.OpenFile(filepath.Join(path, SamplesFile), flags|os.O_APPEND, 0o644)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("open run directory %s: it holds no run: %w: name one that unnest runs lists", path, err)
	}
	if err != nil {
		return nil, fmt.Errorf("open run directory: %w", err)
	}
	err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		err = ErrLocked
	}
	d := &Dir{path: path, journal: f}
	if err != nil {
		err = fmt.Errorf("lock run directory %s: %w", path, err)
	} else {
		err = init(d)
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return d, nil
}

// Path returns the path given to Create or Open.
func (d *Dir) Path() string { return d.path }

// Run returns the run as last written.
func (d *Dir) Run() result.Run { return d.run }

// Samples returns the results in the journal, in order.
func (d *Dir) Samples() []result.Sample { return slices.Clone(d.content.Samples) }

// Journal returns what the journal has. It holds until the next Append.
func (d *Dir) Journal() result.Journal { return d.content }

// Discarded returns how often the execution was measured and discarded since the run was resumed.
func (d *Dir) Discarded(e result.Execution) (n int) {
	for _, s := range d.content.Discarded {
		if s.Execution() == e && s.Resumption == d.run.Resumptions {
			n = max(n, s.Discarded)
		}
	}
	return n
}

// Dropped describes the incomplete execution that Open removed, see result.Journal.
func (d *Dir) Dropped() string { return d.content.Dropped }

// Close releases the lock.
func (d *Dir) Close() error { return d.journal.Close() }

// Update applies change to the run and replaces run.json atomically.
func (d *Dir) Update(change func(*result.Run)) error {
	run := d.run
	change(&run)
	return d.writeRun(run)
}

// Append adds the samples of one execution to the journal, with one write and one fsync.
// A reader sees all of them or none. It refuses an execution that the journal has
// already. If the disk is full, the earlier samples are kept and Append may be called
// again.
func (d *Dir) Append(samples []result.Sample) error {
	if len(samples) == 0 {
		return nil
	}
	lines, err := d.encode(samples)
	if err != nil {
		return fmt.Errorf("append to %s: %w", d.path, err)
	}
	if err := d.write(lines); err != nil {
		return d.explain(err)
	}
	d.content.Add(samples)
	d.content.Size += int64(len(lines))
	return nil
}

// encode checks that samples are of this run and new to it.
func (d *Dir) encode(samples []result.Sample) ([]byte, error) {
	lines, err := result.EncodeExecution(samples)
	if err != nil {
		return nil, err
	}
	for _, s := range samples {
		if s.Run != d.run.ID {
			return nil, fmt.Errorf("sample of run %q: this is run %q", s.Run, d.run.ID)
		}
	}
	if d.content.Has(samples[0]) {
		return nil, fmt.Errorf("%s is already in the journal", samples[0].Execution())
	}
	return lines, nil
}

// write adds lines to the journal, or restores it.
func (d *Dir) write(lines []byte) error {
	if d.broken != nil {
		return d.broken
	}
	_, err := d.journal.Write(lines)
	if err == nil {
		err = d.journal.Sync()
	}
	if err == nil {
		return nil
	}
	if errCut := d.cut(d.content.Size); errCut != nil {
		d.broken = fmt.Errorf("an earlier write was incomplete: %w", errCut)
	}
	return err
}

// cut truncates the journal to size bytes.
func (d *Dir) cut(size int64) error {
	err := d.journal.Truncate(size)
	if err == nil {
		err = d.journal.Sync()
	}
	if err != nil {
		err = fmt.Errorf("truncate journal: %w", err)
	}
	return err
}

// explain adds the fix for a full disk to err.
func (d *Dir) explain(err error) error {
	full := errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT)
	switch {
	case full && len(d.content.Samples) == 0: // whoever made the directory removes it
		return fmt.Errorf("write to %s: %w: free some space and run the command again", d.path, err)
	case full:
		return fmt.Errorf("write to %s: %w: the %d samples so far are kept; free some space and continue with --resume", d.path, err, len(d.content.Samples))
	}
	return fmt.Errorf("write to %s: %w", d.path, err)
}

// writeRun replaces run.json.
func (d *Dir) writeRun(run result.Run) error {
	var buf bytes.Buffer
	enc := json.NewEncoder(&buf)
	enc.SetIndent("", "  ")
	if err := enc.Encode(run); err != nil {
		return fmt.Errorf("encode run %s: %w", run.ID, err)
	}
	if err := replace(filepath.Join(d.path, RunFile), buf.Bytes()); err != nil {
		return d.explain(err)
	}
	d.run = run
	return nil
}

// replace writes content to a new file in the same directory, and renames it to path.
func replace(path string, content []byte) (err error) {
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*")
	if err != nil {
		return err
	}
	success := false
	defer func() {
		if !success {
			err = errors.Join(err, f.Close(), os.Remove(f.Name()))
		}
	}()
	if _, err := f.Write(content); err != nil {
		return err
	}
	if err := errors.Join(f.Chmod(0o644), f.Sync()); err != nil {
		return err
	}
	if err := os.Rename(f.Name(), path); err != nil {
		return err
	}
	success = true
	return errors.Join(f.Close(), syncDir(filepath.Dir(path)))
}

// syncDir makes a rename in path durable.
func syncDir(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

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

// ReadRun reads what the run directory path says about its run, without its samples. It refuses a format of a later version.
func ReadRun(path string) (result.Run, error) { return readRun(path, os.ReadFile) }

func readRun(path string, file func(name string) ([]byte, error)) (run result.Run, _ error) {
	name := filepath.Join(path, RunFile)
	data, err := file(name)
	if err != nil {
		return run, fmt.Errorf("read run directory: %w", err)
	}
	var version struct { // read first: the keys of a later one may have other types
		Schema int `json:"schema_version"`
	}
	if err := json.Unmarshal(data, &version); err == nil && version.Schema > result.Schema {
		return run, fmt.Errorf("parse %s: schema_version %d: this version of unnest reads up to %d: use a later one", name, version.Schema, result.Schema)
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
