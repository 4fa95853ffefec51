// Package lab makes the host's side of a study: a network namespace with the bridges of
// the guests, a second one for clients with NAT between the two, and a state directory.
// Everything that a study makes on the host is inside, so closing the lab removes it.
//
// A lab knows nothing about images, containers and experiments.
package lab

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"

	"golang.org/x/sys/unix"
)

// The addresses of every lab. Labs are isolated from each other, so all use the same.
const (
	ManagementBridge  = "mgmt0"         // guests' first NIC; the host daemon listens on its address
	ManagementGateway = "10.200.0.1"    //
	ManagementPrefix  = 24              //
	TenantBridge      = "br0"           // guests' second NIC and the pods' own NICs
	TenantGateway     = "10.201.0.1"    //
	TenantPrefix      = 16              //
	ClientAddress     = "10.202.0.2"    // the client, in its own namespace
	clientGateway     = "10.202.0.1"    //
	clientNetwork     = "10.202.0.0/30" //
	MTU               = 1500
)

// The errors that callers distinguish.
var (
	ErrInUse = errors.New("lab is in use")
	ErrNoLab = errors.New("no such lab")
)

// Lab is an open lab. Its owner is the process that holds its lock. A persistent lab
// has no owner.
type Lab struct {
	Name string
	Dir  string // state directory
	lock *os.File
}

// Root is the directory of the labs' state: $UNNEST_STATE, else /run/unnest.
func Root() string {
	if dir := os.Getenv("UNNEST_STATE"); dir != "" {
		return dir
	}
	return "/run/unnest"
}

var validName = regexp.MustCompile(`^[a-z0-9][a-z0-9-]{0,31}$`)

// Create makes the lab name. If a step fails, it removes what it has made.
func Create(name string) (_ *Lab, err error) {
	if !validName.MatchString(name) {
		return nil, fmt.Errorf("lab name %q: want at most 32 of a-z, 0-9 and -, not beginning with -", name)
	}
	l := &Lab{Name: name, Dir: filepath.Join(Root(), name)}
	if err := os.MkdirAll(filepath.Join(l.Dir, "guests"), 0o700); err != nil {
		return nil, fmt.Errorf("create state of lab %s: %w", name, err)
	}
	if l.lock, err = lockDir(l.Dir); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, l.Close())
		}
	}()
	if err := l.buildNetwork(); err != nil {
		return nil, fmt.Errorf("create network of lab %s: %w", name, err)
	}
	return l, nil
}

// Open opens the existing lab name and locks it.
func Open(name string) (*Lab, error) {
	l, err := View(name)
	if err == nil {
		l.lock, err = lockDir(l.Dir)
	}
	if err != nil {
		return nil, err
	}
	return l, nil
}

// View returns the existing lab name without locking it, to inspect it and to reach its
// guests.
func View(name string) (*Lab, error) {
	dir := filepath.Join(Root(), name)
	if _, err := os.Stat(dir); err != nil {
		return nil, fmt.Errorf("%w: %s", ErrNoLab, name)
	}
	return &Lab{Name: name, Dir: dir}, nil
}

func lockDir(dir string) (*os.File, error) {
	f, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("lock lab: %w", err)
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		if errors.Is(err, unix.EWOULDBLOCK) {
			err = fmt.Errorf("%w: %s: another unnest works with it; wait for it to end", ErrInUse, filepath.Base(dir))
		}
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// Release makes the lab persistent and unlocks it: it stays until a process opens and
// closes it.
func (l *Lab) Release() error {
	if err := os.WriteFile(l.persistentMark(), nil, 0o600); err != nil {
		return fmt.Errorf("keep lab %s: %w", l.Name, err)
	}
	return l.lock.Close()
}

func (l *Lab) persistentMark() string { return filepath.Join(l.Dir, "persistent") }

// GuestDir is the state directory of a guest of the lab.
func (l *Lab) GuestDir(guest string) string { return filepath.Join(l.Dir, "guests", guest) }

// Guests returns the names of the guests that have a state directory.
func (l *Lab) Guests() ([]string, error) {
	entries, err := os.ReadDir(filepath.Join(l.Dir, "guests"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("list guests of lab %s: %w", l.Name, err)
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names, nil
}

// Close kills the processes of the lab, then removes its namespaces, with all bridges,
// NICs and rules in them, and its state directory. It tries every step and joins the
// errors.
func (l *Lab) Close() error {
	errs := []error{l.killProcesses()}
	for _, ns := range []string{l.hostNS(), l.clientNS()} {
		errs = append(errs, deleteNS(ns))
	}
	errs = append(errs, os.RemoveAll(l.Dir))
	if l.lock != nil {
		errs = append(errs, l.lock.Close())
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("remove lab %s: %w", l.Name, err)
	}
	return nil
}

// List returns the names of all labs on this machine.
func List() ([]string, error) {
	entries, err := os.ReadDir(Root())
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list labs: %w", err)
	}
	var names []string
	for _, e := range entries {
		if e.IsDir() {
			names = append(names, e.Name())
		}
	}
	return names, nil
}
