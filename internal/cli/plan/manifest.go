package plan

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"unnest/internal/plan/manifest"
)

// writeFiles writes files into a new or empty directory: all files, or none.
func writeFiles(dir, what string, files []manifest.File) (err error) {
	dir = filepath.Clean(dir)
	building, err := os.MkdirTemp(filepath.Dir(dir), "."+filepath.Base(dir)+".")
	if err != nil {
		return fmt.Errorf("write %s to %s: %w", what, dir, withoutPath(err))
	}
	success := false
	defer func() {
		if !success {
			err = errors.Join(err, os.RemoveAll(building))
		}
	}()
	for _, f := range files {
		if err := os.WriteFile(filepath.Join(building, f.Name), f.Text, 0o644); err != nil {
			return fmt.Errorf("write %s to %s: %w", what, dir, withoutPath(err))
		}
	}
	if err := errors.Join(os.Chmod(building, 0o755), mayFill(dir, what)); err != nil {
		return err
	}
	if err := os.Remove(dir); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("write %s to %s: %w", what, dir, withoutPath(err))
	}
	if err := os.Rename(building, dir); err != nil {
		return fmt.Errorf("write %s to %s: %w", what, dir, withoutPath(err))
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
