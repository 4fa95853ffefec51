package document

import (
	"bytes"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
)

// WriteFile writes what write writes to path. After an error path holds what it held
// before. WriteFile follows a symbolic link, and writes to a device or pipe instead of
// replacing it.
func WriteFile(path string, write func(io.Writer) error) error {
	var content bytes.Buffer
	if err := write(&content); err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	if target, err := filepath.EvalSymlinks(path); err == nil {
		path = target
	}
	info, err := os.Stat(path)
	switch {
	case err == nil && info.IsDir():
		return fmt.Errorf("write %s: it is a directory: name a file in it", path)
	case err == nil && !info.Mode().IsRegular():
		err = os.WriteFile(path, content.Bytes(), 0)
	default:
		err = replace(path, content.Bytes())
	}
	if err != nil {
		return fmt.Errorf("write %s: %w", path, WithoutPath(err))
	}
	return nil
}

// replace writes content to a new file in the directory of path and renames it.
func replace(path string, content []byte) (err error) {
	name := filepath.Join(filepath.Dir(path), "."+filepath.Base(path)+"."+rand.Text())
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o666) // less the umask
	if err != nil {
		return err
	}
	success := false
	defer func() {
		if !success {
			err = errors.Join(err, os.Remove(name))
		}
	}()
	_, err = f.Write(content)
	if err := errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	if err := os.Rename(name, path); err != nil {
		return err
	}
	success = true
	return nil
}

// WithoutPath drops from err the path of the file, which the caller names itself.
func WithoutPath(err error) error {
	if e, ok := errors.AsType[*fs.PathError](err); ok {
		return e.Err
	}
	return err
}
