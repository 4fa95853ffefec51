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

	"unnest/internal/cni/failure"
)

// settleTime bounds the wait for who is giving things back: one may take that long.
const settleTime = 55 * time.Second

// What one command may do for others' attachments.
const (
	pendingMost = 16
	pendingTime = 20 * time.Second
)

// Pending are the notes of what DELs could not give back, because the host daemon
// could not be asked: one file each, in a directory that is locked while things
// are given back.
type Pending struct {
	State  State
	Dir    string // name in State, of one kind of thing
	What   string // that kind, for errors, such as "the NIC"
	Server string // the daemon that has given it
}

// GiveBack gives one attachment's thing back; there may be none.
type GiveBack func(ctx context.Context, container, iface string) error

// note is the content of such a file.
type note struct {
	Container string `json:"container"`
	Interface string `json:"interface"`
	Server    string `json:"server"`
}

func (p Pending) dir() string { return filepath.Join(string(p.State), p.Dir) }

// file is where it is noted. Neither part can have a colon.
func (p Pending) file(container, iface string) string {
	return filepath.Join(p.dir(), container+":"+iface)
}

// Note writes down, whole or not at all, that an attachment is to be given back.
func (p Pending) Note(container, iface string) error {
	if err := p.write(note{container, iface, p.Server}); err != nil {
		return fmt.Errorf("note %s of %s %s, to be given back later: %w", p.What, container, iface, err)
	}
	return nil
}

func (p Pending) write(n note) error {
	content, err := json.Marshal(n)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(p.dir(), 0o700); err != nil {
		return err
	}
	f, err := os.CreateTemp(p.dir(), ".new-")
	if err != nil {
		return err
	}
	_, err = f.Write(content)
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(f.Name(), p.file(n.Container, n.Interface))
	}
	if err != nil {
		_ = os.Remove(f.Name()) // the error tells more
	}
	return err
}

// noted reports whether it is written down.
func (p Pending) noted(container, iface string) bool {
	_, err := os.Lstat(p.file(container, iface))
	return err == nil
}

// Return gives one attachment's thing back. When the host daemon cannot be asked,
// it is noted, to be given back by a later command.
func (p Pending) Return(ctx context.Context, give GiveBack, container, iface string) (noted bool, err error) {
	err = give(ctx, container, iface)
	if failure.Unanswered(err) {
		return true, p.Note(container, iface)
	}
	return false, err
}

// End is the end of a DEL: it returns the attachment's thing, and finishes what
// earlier commands have noted. What the host cannot take back yet has to be taken
// out of the pod, which has nothing any more after a DEL.
func (p Pending) End(ctx context.Context, give GiveBack, container, iface string, takeOut func() error) error {
	noted, err := p.Return(ctx, give, container, iface)
	switch {
	case noted:
		return errors.Join(err, takeOut())
	case err != nil:
		return err
	}
	_ = p.Finish(ctx, give) // not this command's business if it fails
	return nil
}

// Settle gives back what earlier DELs have left, which may stand in an ADD's way. Its
// own attachment has to be given back, if it is noted: a later command would take
// what is new for the old. Others' are no reason to fail.
func (p Pending) Settle(ctx context.Context, give GiveBack, container, iface string) error {
	if err := p.settleNow(ctx, give, container, iface); err != nil {
		return err
	}
	_ = p.Finish(ctx, give)
	return nil
}

// settleNow gives one attachment back, if it is noted. Only who holds the lock
// removes a note, and only after the thing is gone; so without a note nobody is about
// to take anything away.
func (p Pending) settleNow(ctx context.Context, give GiveBack, container, iface string) error {
	if !p.noted(container, iface) {
		return nil
	}
	wait, cancel := context.WithTimeout(ctx, settleTime)
	defer cancel()
	unlock, err := p.lock(wait)
	if err != nil {
		return err
	}
	defer unlock()
	if !p.noted(container, iface) {
		return nil
	}
	return p.settle(ctx, give, container, iface)
}

// settle needs the lock.
func (p Pending) settle(ctx context.Context, give GiveBack, container, iface string) error {
	err := give(ctx, container, iface)
	if err == nil {
		err = os.RemoveAll(p.file(container, iface)) // another may have removed it
	}
	if err != nil {
		return fmt.Errorf("give back %s of %s %s: %w", p.What, container, iface, err)
	}
	return nil
}

// Finish gives back what earlier commands have noted for this daemon, within
// bounds; what is left is for the next command. When another process is at it,
// there is nothing to do.
func (p Pending) Finish(ctx context.Context, give GiveBack) error {
	all, err := p.list()
	if err != nil || len(all) == 0 {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, pendingTime)
	defer cancel()
	now, nothing := context.WithTimeout(ctx, 0)
	defer nothing()
	unlock, err := p.lock(now)
	if errors.Is(err, unix.EWOULDBLOCK) {
		return nil
	}
	if err != nil {
		return err
	}
	defer unlock()
	// In any order: the same few that are always refused must not be all.
	rand.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	var failed error
	for _, n := range all[:min(len(all), pendingMost)] {
		if !p.noted(n.Container, n.Interface) {
			continue
		}
		if err := p.settle(ctx, give, n.Container, n.Interface); err != nil {
			failed = errors.Join(failed, err)
			if failure.Unanswered(err) || ctx.Err() != nil {
				break
			}
		}
	}
	return failed
}

// list reads the notes for this daemon.
func (p Pending) list() ([]note, error) {
	files, err := os.ReadDir(p.dir())
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list what is to be given back: %w", err)
	}
	var all []note
	for _, f := range files {
		if strings.HasPrefix(f.Name(), ".") {
			continue
		}
		n, path := note{}, filepath.Join(p.dir(), f.Name())
		content, err := os.ReadFile(path)
		if err == nil && json.Unmarshal(content, &n) == nil && p.file(n.Container, n.Interface) == path && n.Server == p.Server {
			all = append(all, n)
		}
	}
	return all, nil
}

// lock waits until ctx ends; the error is then EWOULDBLOCK. The lock goes with the
// process.
func (p Pending) lock(ctx context.Context) (unlock func(), err error) {
	dir, err := os.Open(p.dir())
	if err == nil {
		err = await(ctx, dir)
	}
	if err != nil {
		return nil, fmt.Errorf("lock the notes of what is to be given back: %w", err)
	}
	return func() { _ = dir.Close() }, nil
}
