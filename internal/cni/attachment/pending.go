package attachment

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"unnest.io/unnest/internal/cni/hostclient"
)

// reconcileTime bounds the wait for another process that is releasing: one release
// may take that long.
const reconcileTime = 55 * time.Second

// Bounds of what one command does for other attachments.
const (
	retryMost = 16
	retryTime = 20 * time.Second
)

// pending are the releases that DELs could not do, because the host daemon did not
// answer: one file each in a directory, which is locked during releases.
type pending struct {
	dir     string // name in StateDir
	what    string // what is released, for errors
	server  string // the daemon that gave it, or anyServer
	release func(ctx context.Context, container, iface string) error
	forget  func(container, iface string) error // removes the file of another attachment that was released; nil: there is none
}

// anyServer is the server of a release whose configuration names none that could be called. Each
// daemon that the guest reaches is asked: it accepts a release of what it has not given.
const anyServer = ""

// record is the content of a file.
type record struct {
	Container string `json:"container"`
	Interface string `json:"interface"`
	Server    string `json:"server"`
}

func (p pending) path() string { return filepath.Join(StateDir, p.dir) }

// file is unique: neither a container ID nor an interface name can have a colon.
func (p pending) file(container, iface string) string {
	return filepath.Join(p.path(), container+":"+iface)
}

// record writes the file of a release, completely or not at all.
func (p pending) record(container, iface string) error {
	if err := p.write(record{container, iface, p.server}); err != nil {
		return fmt.Errorf("record pending release of %s of %s %s: %w", p.what, container, iface, err)
	}
	return nil
}

func (p pending) write(r record) error {
	return WriteFile(p.file(r.Container, r.Interface), r)
}

func (p pending) recorded(container, iface string) bool {
	_, err := os.Lstat(p.file(container, iface))
	return err == nil
}

// releaseOrRecord releases one attachment or, if the host daemon does not answer,
// records the release for a later command.
func (p pending) releaseOrRecord(ctx context.Context, container, iface string) (recorded bool, err error) {
	err = p.release(ctx, container, iface)
	if hostclient.Unanswered(err) {
		return true, p.record(container, iface)
	}
	return false, err
}

// end is the end of a DEL: it releases the attachment and retries earlier releases.
// What cannot be released now is recorded, and has to be moved out of the pod.
func (p pending) end(ctx context.Context, container, iface string, moveOut func() error) (recorded bool, err error) {
	recorded, err = p.releaseOrRecord(ctx, container, iface)
	switch {
	case recorded:
		return true, errors.Join(err, moveOut())
	case err != nil:
		return false, err
	}
	_ = p.retry(ctx) // other attachments' failures are not this command's
	return false, nil
}

// reconcile does the pending release of one attachment, if there is one, and then
// retries the others, whose failure is not an error.
func (p pending) reconcile(ctx context.Context, container, iface string) error {
	if err := p.finishOne(ctx, container, iface); err != nil {
		return err
	}
	_ = p.retry(ctx)
	return nil
}

// finishOne does the pending release of one attachment. Only the holder of the lock
// removes a file, and only after the release. So without a file no other process is
// about to release the attachment.
func (p pending) finishOne(ctx context.Context, container, iface string) error {
	if !p.recorded(container, iface) {
		return nil
	}
	wait, cancel := context.WithTimeout(ctx, reconcileTime)
	defer cancel()
	unlock, err := LockDir(wait, p.path())
	if err != nil {
		return err
	}
	defer unlock()
	if !p.recorded(container, iface) {
		return nil
	}
	return p.finish(ctx, container, iface)
}

// finish releases and removes the file. The caller holds the lock.
func (p pending) finish(ctx context.Context, container, iface string) error {
	err := p.release(ctx, container, iface)
	if err == nil {
		err = os.RemoveAll(p.file(container, iface)) // another may have removed it
	}
	if err != nil {
		return fmt.Errorf("release %s of %s %s: %w", p.what, container, iface, err)
	}
	return nil
}

// retry does the pending releases at this daemon, within bounds; the rest is for the
// next command. While another process does them, retry does nothing.
func (p pending) retry(ctx context.Context) error {
	all, err := p.list()
	if err != nil || len(all) == 0 {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, retryTime)
	defer cancel()
	now, nothing := context.WithTimeout(ctx, 0)
	defer nothing()
	unlock, err := LockDir(now, p.path())
	if errors.Is(err, unix.EWOULDBLOCK) {
		return nil
	}
	if err != nil {
		return err
	}
	defer unlock()
	// In random order, so that releases that always fail do not block the others.
	rand.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	var failed error
	for _, r := range all[:min(len(all), retryMost)] {
		if !p.recorded(r.Container, r.Interface) {
			continue
		}
		err := p.finish(ctx, r.Container, r.Interface)
		if err == nil && p.forget != nil {
			err = p.forget(r.Container, r.Interface)
		}
		if err != nil {
			failed = errors.Join(failed, err)
			if hostclient.Unanswered(err) || ctx.Err() != nil {
				break
			}
		}
	}
	return failed
}

// list reads the pending releases at this daemon.
func (p pending) list() ([]record, error) {
	files, err := os.ReadDir(p.path())
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list pending releases: %w", err)
	}
	var all []record
	for _, f := range files {
		if strings.HasPrefix(f.Name(), ".") {
			continue
		}
		r, path := record{}, filepath.Join(p.path(), f.Name())
		content, err := os.ReadFile(path)
		if err == nil && json.Unmarshal(content, &r) == nil && p.file(r.Container, r.Interface) == path && (r.Server == p.server || r.Server == anyServer) {
			all = append(all, r)
		}
	}
	return all, nil
}

// WriteFile writes value to path as JSON that only root may read, completely or not at all. It makes the
// directory. After a failure of the machine, too, the file is complete or as before. A process that is killed may leave a file whose name begins with ".new-".
func WriteFile(path string, value any) error {
	content, err := json.Marshal(value)
	if err != nil {
		return err
	}
	dir := filepath.Dir(path)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	f, err := os.CreateTemp(dir, ".new-")
	if err != nil {
		return err
	}
	_, err = f.Write(content)
	if err = errors.Join(err, f.Sync(), f.Close()); err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		_ = os.Remove(f.Name())
	}
	return err
}
