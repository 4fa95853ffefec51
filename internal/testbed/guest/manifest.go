package guest

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"time"
)

// manifest describes a snapshot. It is written last.
type manifest struct {
	Inputs  []string            `json:"inputs"`  // everything that the snapshot depends on
	Stopped time.Time           `json:"stopped"` // since when the guest's clock stands still
	Ahead   time.Duration       `json:"ahead"`   // of the guest's clock before the host's, then
	Files   map[string]fileMark `json:"files"`
}

// fileMark tells whether a file has changed.
type fileMark struct {
	Size     int64     `json:"size"`
	Modified time.Time `json:"modified"`
	Sum      string    `json:"sum"` // of samples: see sampleSum
}

// lag is how far the guest's clock is behind when it runs again, unless QEMU lost the processor
// between the clocks and its events.
func (m manifest) lag(now time.Time) time.Duration { return now.Sub(m.Stopped) - m.Ahead }

// errDamaged is the error for a snapshot whose files are not those that were written.
var errDamaged = errors.New("snapshot is damaged")

// readManifest reads the manifest in dir, which must have these inputs, and checks the
// files. If there is none, the error wraps os.ErrNotExist.
func readManifest(dir string, inputs []string) (m manifest, err error) {
	content, err := os.ReadFile(filepath.Join(dir, manifestFile))
	if err != nil {
		if _, noDir := os.Stat(dir); noDir == nil {
			err = fmt.Errorf("%w: %s", errDamaged, err.Error())
		}
		return m, err
	}
	if err := decodeManifest(content, &m); err != nil {
		return m, fmt.Errorf("%w: %w", errDamaged, err)
	}
	if !slices.Equal(m.Inputs, inputs) {
		return m, fmt.Errorf("%w: it is for another guest or machine", errDamaged)
	}
	for _, name := range []string{memoryFile, diskFile, deviceFile} {
		got, err := markFile(filepath.Join(dir, name))
		if err != nil {
			return m, fmt.Errorf("%w: %s", errDamaged, err.Error()) // a missing file is not a missing snapshot
		}
		if want := m.Files[name]; got.Size != want.Size || !got.Modified.Equal(want.Modified) || got.Sum != want.Sum {
			return m, fmt.Errorf("%w: %s is not the file that was written", errDamaged, name)
		}
	}
	return m, nil
}

func decodeManifest(content []byte, m *manifest) error {
	if err := json.Unmarshal(content, m); err != nil {
		return fmt.Errorf("read %s: %w", manifestFile, err)
	}
	return nil
}

// writeManifest writes the manifest into dir, after everything else.
func writeManifest(dir string, m manifest) error {
	m.Files = map[string]fileMark{}
	for _, name := range []string{memoryFile, diskFile, deviceFile} {
		mark, err := markFile(filepath.Join(dir, name))
		if err != nil {
			return err
		}
		m.Files[name] = mark
	}
	content, err := json.MarshalIndent(m, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, manifestFile), content, 0o600)
}

// Of a file larger than sampleAll, every sampleStep bytes a page is summed: a gigabyte
// takes milliseconds. The time of modification tells of other changes.
const (
	sampleAll  = 8 << 20
	sampleStep = 1 << 20
	samplePage = 4 << 10
)

func markFile(path string) (fileMark, error) {
	f, err := os.Open(path)
	if err != nil {
		return fileMark{}, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return fileMark{}, err
	}
	sum, err := sampleSum(f, info.Size())
	return fileMark{info.Size(), info.ModTime(), sum}, err
}

// sampleSum returns the SHA-256 of a small content, and of samples of a large one.
func sampleSum(r io.ReaderAt, size int64) (string, error) {
	step, page := int64(sampleStep), int64(samplePage)
	if size <= sampleAll {
		page = step
	}
	h := sha256.New()
	for at := int64(0); at < size; at += step {
		if _, err := io.Copy(h, io.NewSectionReader(r, at, min(page, size-at))); err != nil {
			return "", err
		}
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}
