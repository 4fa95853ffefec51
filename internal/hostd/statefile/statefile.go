// Package statefile writes files of the state directory that survive a crash of the host.
package statefile

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"unnest.io/unnest/internal/hostapi/identity"
)

// Write writes a value as Stream does, as JSON.
func Write(path string, v any) error {
	return Stream(path, func(w io.Writer) error {
		content, err := json.MarshalIndent(v, "", "  ")
		if err != nil {
			return err
		}
		_, err = w.Write(append(content, '\n'))
		return err
	})
}

// Stream writes a file that only root can read, whole or not at all, also when the
// host fails.
func Stream(path string, content func(io.Writer) error) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	f, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".*")
	if err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	if err = content(f); err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err == nil {
		err = Rename(f.Name(), path)
	}
	if err != nil {
		_ = os.Remove(f.Name())
		return fmt.Errorf("write %s: %w", path, err)
	}
	return nil
}

// RemoveLeftovers removes from a state directory the files that processes have not finished before a time, because they were killed.
func RemoveLeftovers(stateDir string, before time.Time) {
	for _, pattern := range []string{"*.pem.[0-9]*", "*/*.json.[0-9]*", "*/*/*.json.[0-9]*"} {
		paths, _ := filepath.Glob(filepath.Join(stateDir, pattern))
		for _, path := range paths {
			if info, err := os.Lstat(path); err == nil && info.ModTime().Before(before) {
				_ = os.Remove(path)
			}
		}
	}
}

// Truncate is os.Truncate of a file that has this size also after the host has failed.
func Truncate(path string, size int64) error {
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	return errors.Join(f.Truncate(size), f.Sync(), f.Close(), identity.SyncDirectory(filepath.Dir(path)))
}

// Rename is os.Rename within a directory that lasts.
func Rename(from, to string) error {
	if err := os.Rename(from, to); err != nil {
		return err
	}
	return identity.SyncDirectory(filepath.Dir(to))
}

// WhileLocked calls f while no other process has the lock of a directory.
func WhileLocked(dir string, f func() error) error {
	d, err := os.Open(dir)
	if err != nil {
		return fmt.Errorf("lock directory %s: %w", dir, err)
	}
	defer d.Close() // ends the lock
	if err := unix.Flock(int(d.Fd()), unix.LOCK_EX); err != nil {
		return fmt.Errorf("lock directory %s: %w", dir, err)
	}
	return f()
}
