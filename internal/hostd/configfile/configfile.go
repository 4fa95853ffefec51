// Package configfile reads the host daemon's configuration file, says when it changes, and
// replaces it.
//
// What the file means belongs to package quota.
package configfile

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/fsnotify/fsnotify"
	"golang.org/x/sys/unix"

	"unnest.io/unnest/internal/hostapi/identity"
	"unnest.io/unnest/internal/hostd/quota"
	"unnest.io/unnest/internal/hostd/statefile"
)

// quiet is how long a file has to stay as it is before it is read: editors and programs
// write in several steps.
const quiet = 300 * time.Millisecond

// Read reads and checks a configuration file.
func Read(path string) (quota.Config, error) {
	content, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return quota.Config{}, fmt.Errorf("read configuration: %w: write one, or name it with --config", err)
	}
	if err != nil {
		return quota.Config{}, fmt.Errorf("read configuration: %w", err)
	}
	return quota.Parse(path, content)
}

// Watch calls changed when the file has another content than before, and at each signal,
// until ctx ends. If it cannot watch the file, it logs why, and only signals count.
func Watch(ctx context.Context, path string, signals <-chan os.Signal, log *slog.Logger, changed func()) {
	content, _ := os.ReadFile(path)
	watcher, err := watch(path)
	if err != nil {
		log.Warn("watch the configuration file: a change takes effect at SIGHUP only", "file", path, "error", err)
		watcher = &fsnotify.Watcher{}
	} else {
		defer watcher.Close()
	}
	settled := time.NewTimer(0)
	settled.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-signals:
			content, _ = os.ReadFile(path)
			changed()
		case <-watcher.Events:
			settled.Reset(quiet)
		case err := <-watcher.Errors: // events were lost
			log.Warn("watch the configuration file", "file", path, "error", err)
			settled.Reset(quiet)
		case <-settled.C:
			now, _ := os.ReadFile(path) // changed reports an error
			if !bytes.Equal(now, content) {
				content = now
				changed()
			}
		}
	}
}

// watch watches the directory of the file, because editors replace files. If the file is
// a link, it also watches the directory that the link leads to.
func watch(path string) (*fsnotify.Watcher, error) {
	w, err := fsnotify.NewWatcher()
	if err != nil {
		return nil, err
	}
	err = w.Add(filepath.Dir(path))
	if target, linkErr := filepath.EvalSymlinks(path); linkErr == nil {
		err = errors.Join(err, w.Add(filepath.Dir(target)))
	}
	if err != nil {
		return nil, errors.Join(err, w.Close())
	}
	return w, nil
}

// Edit replaces the content of a configuration file by what change makes of it, whole or
// not at all. The file keeps its mode and owner. Concurrent edits wait for each other.
func Edit(path string, change func([]byte) ([]byte, error)) error {
	path, err := filepath.EvalSymlinks(path)
	if err != nil {
		return fmt.Errorf("edit configuration: %w", err)
	}
	return statefile.WhileLocked(filepath.Dir(path), func() error {
		content, err := os.ReadFile(path)
		if err != nil {
			return fmt.Errorf("read configuration: %w", err)
		}
		if content, err = change(content); err != nil {
			return err
		}
		if err := replace(path, content); err != nil {
			return fmt.Errorf("write configuration %s: %w", path, err)
		}
		return identity.SyncDirectory(filepath.Dir(path))
	})
}

func replace(path string, content []byte) (err error) {
	var was unix.Stat_t
	if err := unix.Stat(path, &was); err != nil {
		return err
	}
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*")
	if err != nil {
		return err
	}
	defer func() {
		if err = errors.Join(err, f.Close()); err != nil {
			err = errors.Join(err, os.Remove(f.Name()))
			return
		}
		err = os.Rename(f.Name(), path)
	}()
	if _, err := f.Write(content); err != nil {
		return err
	}
	return errors.Join(f.Chmod(os.FileMode(was.Mode&0o777)), f.Chown(int(was.Uid), int(was.Gid)), f.Sync())
}
