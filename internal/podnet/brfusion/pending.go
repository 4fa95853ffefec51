package brfusion

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

	"unnest/internal/podnet/netconf"
)

// pendingDir has one file for each NIC that a DEL could not give back, because
// the host daemon could not be asked. Like the NICs it does not outlive the
// guest's boot. It is locked while NICs of it are given back.
var pendingDir = "/run/unnest/pending"

// What one command may do for others' NICs.
const (
	pendingMost = 16
	pendingTime = 20 * time.Second
)

// pending is the content of such a file.
type pending struct {
	Container string `json:"container"`
	Interface string `json:"interface"`
	Server    string `json:"server"` // the daemon that has given it
}

// file is where it is noted. Neither part can have a colon.
func (p pending) file() string { return filepath.Join(pendingDir, p.Container+":"+p.Interface) }

// note writes it down, whole or not at all.
func (p pending) note() error {
	if err := p.write(); err != nil {
		return fmt.Errorf("note the NIC of %s %s, to be given back later: %w", p.Container, p.Interface, err)
	}
	return nil
}

func (p pending) write() error {
	content, err := json.Marshal(p)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(pendingDir, 0o700); err != nil {
		return err
	}
	f, err := os.CreateTemp(pendingDir, ".new-")
	if err != nil {
		return err
	}
	_, err = f.Write(content)
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(f.Name(), p.file())
	}
	if err != nil {
		_ = os.Remove(f.Name()) // the error tells more
	}
	return err
}

// noted reports whether it is written down.
func (p pending) noted() bool {
	_, err := os.Lstat(p.file())
	return err == nil
}

// settle gives one NIC back now, if it is noted. An ADD needs that for its own
// attachment: a later command would take its new NIC for the old one. Only who
// holds the lock removes a note, and only after the NIC is gone; so without a
// note nobody is about to take a NIC away.
func (p pending) settle(ctx context.Context, d daemon) error {
	if !p.noted() {
		return nil
	}
	wait, cancel := context.WithTimeout(ctx, detachTime)
	defer cancel()
	unlock, err := lockPending(wait)
	if err != nil {
		return err
	}
	defer unlock()
	if !p.noted() {
		return nil
	}
	return p.giveBack(ctx, d)
}

// giveBack needs the lock.
func (p pending) giveBack(ctx context.Context, d daemon) error {
	if err := d.detach(ctx, p.Container, p.Interface); err != nil {
		return fmt.Errorf("give back the NIC of %s %s: %w", p.Container, p.Interface, err)
	}
	if err := os.Remove(p.file()); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("give back the NIC of %s %s: %w", p.Container, p.Interface, err)
	}
	return nil
}

// finishPending gives back what earlier commands have noted for this daemon,
// within bounds; what is left is for the next command. When another process is
// at it, there is nothing to do.
func finishPending(ctx context.Context, d daemon, c netconf.BrFusion) error {
	all, err := listPending(c)
	if err != nil || len(all) == 0 {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, pendingTime)
	defer cancel()
	now, nothing := context.WithTimeout(ctx, 0)
	defer nothing()
	unlock, err := lockPending(now)
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
	for _, p := range all[:min(len(all), pendingMost)] {
		if !p.noted() {
			continue
		}
		if err := p.giveBack(ctx, d); err != nil {
			failed = errors.Join(failed, err)
			if unanswered(err) || ctx.Err() != nil {
				break
			}
		}
	}
	return failed
}

// listPending reads the notes for this daemon.
func listPending(c netconf.BrFusion) ([]pending, error) {
	files, err := os.ReadDir(pendingDir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list NICs to be given back: %w", err)
	}
	var all []pending
	for _, f := range files {
		if strings.HasPrefix(f.Name(), ".") {
			continue
		}
		p := pending{}
		content, err := os.ReadFile(filepath.Join(pendingDir, f.Name()))
		if err == nil && json.Unmarshal(content, &p) == nil && p.file() == filepath.Join(pendingDir, f.Name()) && p.Server == c.Server.String() {
			all = append(all, p)
		}
	}
	return all, nil
}

// lockPending waits until ctx ends; the error is then EWOULDBLOCK. The lock goes
// with the process.
func lockPending(ctx context.Context) (unlock func(), err error) {
	dir, err := os.Open(pendingDir)
	if err == nil {
		err = await(ctx, dir)
	}
	if err != nil {
		return nil, fmt.Errorf("lock the notes of NICs to be given back: %w", err)
	}
	return func() { _ = dir.Close() }, nil
}
