package plan

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"unnest.io/unnest/internal/plan/manifest"
)

// mayFill returns an error unless the directory is empty or does not exist.
func mayFill(dir string) error {
	entries, err := os.ReadDir(dir)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return nil
	case err != nil:
		return fmt.Errorf("--write: %w: name a new directory", err)
	case len(entries) > 0:
		return fmt.Errorf("--write: %s is not empty: name a new directory", dir)
	}
	return nil
}

// writeFiles writes files into a new or empty directory: all files, or none.
func writeFiles(dir string, files []manifest.File) (err error) {
	dir = filepath.Clean(dir)
	fail := func(err error) error { return fmt.Errorf("write to %s: %w", dir, withoutPath(err)) }
	building, err := os.MkdirTemp(filepath.Dir(dir), "."+filepath.Base(dir)+".")
	if err != nil {
		return fail(err)
	}
	success := false
	defer func() {
		if !success {
			err = errors.Join(err, os.RemoveAll(building))
		}
	}()
	for _, f := range files {
		path := filepath.Join(building, f.Name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, f.Text, 0o644)); err != nil {
			return fail(err)
		}
	}
	if err := errors.Join(os.Chmod(building, 0o755), mayFill(dir)); err != nil {
		return err
	}
	if err := os.Remove(dir); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fail(err)
	}
	if err := os.Rename(building, dir); err != nil {
		return fail(err)
	}
	success = true
	return nil
}

// withoutPath removes the name of the temporary directory from an error.
func withoutPath(err error) error {
	var path *fs.PathError
	var link *os.LinkError
	switch {
	case errors.As(err, &path):
		return path.Err
	case errors.As(err, &link):
		return link.Err
	}
	return err
}
