// Package lab makes the host's side of a study: a network namespace with the bridges of
// the guests, a second one for clients with NAT between the two, and a state directory.
// Everything that a study makes on the host is inside, so closing the lab removes it.
//
// A lab knows nothing about images, containers and experiments.
package lab

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"golang.org/x/sys/unix"

	"unnest.io/unnest/internal/hostd/statefile"
	"unnest.io/unnest/internal/netdev/share"
)

// The addresses of every lab. Labs are isolated from each other, so all use the same.
const (
	ManagementBridge  = "mgmt0"          // guests' first NIC; the host daemon listens on its address
	ManagementGateway = "10.200.0.1"     //
	ManagementPrefix  = 24               //
	TenantBridge      = "br0"            // guests' second NIC and the pods' own NICs
	TenantGateway     = "10.201.0.1"     //
	TenantPrefix      = 16               //
	TenantGateway6    = "fd00:10:201::1" // after AddIPv6
	TenantPrefix6     = 64               //
	ClientAddress     = "10.202.0.2"     // the client, in its own namespace
	clientGateway     = "10.202.0.1"     //
	clientNetwork     = "10.202.0.0/30"  //
	MTU               = 1500
)

// The errors that callers distinguish.
var (
	ErrInUse  = errors.New("lab is in use")
	ErrExists = errors.New("lab exists")
	ErrNoLab  = errors.New("no such lab")
)

// Lab is an open lab. Its owner is the process that holds its lock. A persistent lab
// has no owner.
type Lab struct {
	Name string
	Dir  string // state directory, absolute and without symbolic links
	lock *os.File
}

func newLab(name string) *Lab { return &Lab{Name: name, Dir: filepath.Join(Root(), name)} }

const defaultRoot = "/run/unnest"

// Root is the directory of the labs' state: $UNNEST_STATE, else /run/unnest. The path is
// absolute and without symbolic links.
func Root() string {
	if dir := os.Getenv("UNNEST_STATE"); dir != "" {
		return resolve(dir)
	}
	return resolve(defaultRoot)
}

// resolve makes a path absolute and resolves the symbolic links in the part that exists.
func resolve(path string) string {
	if absolute, err := filepath.Abs(path); err == nil {
		path = absolute
	}
	if resolved, err := filepath.EvalSymlinks(path); err == nil {
		return resolved
	}
	if dir := filepath.Dir(path); dir != path {
		return filepath.Join(resolve(dir), filepath.Base(path))
	}
	return path
}

// ID identifies the lab on this machine: its name, and outside of the default state
// directory a hash of that directory. No lab's name has a dot, so IDs of different state
// directories differ.
func (l *Lab) ID() string { return l.Name + l.suffix() }

func (l *Lab) suffix() string {
	root := filepath.Dir(l.Dir)
	if root == resolve(defaultRoot) {
		return ""
	}
	sum := sha256.Sum256([]byte(root))
	return "." + hex.EncodeToString(sum[:4])
}

var validName = regexp.MustCompile(`^[a-z0-9][a-z0-9-]{0,31}$`)

// Create makes the lab name. If a step fails, it removes what it has made, and nothing
// else. The error wraps ErrInUse or ErrExists if there is a lab of that name.
func Create(name string) (_ *Lab, err error) {
	if !validName.MatchString(name) {
		return nil, fmt.Errorf("lab name %q: want at most 32 of a-z, 0-9 and -, not beginning with -", name)
	}
	l := newLab(name)
	if strings.Contains(l.Dir, ",") || len(l.GuestDir("node99/hostd.qmp")) > 107 { // a comma ends QEMU's options; a socket's path has at most 107 bytes
		return nil, fmt.Errorf("create lab in %s: want a path of at most 83 bytes without a comma: set UNNEST_STATE to another directory", l.Dir)
	}
	if err := os.MkdirAll(filepath.Dir(l.Dir), 0o700); err != nil {
		return nil, fmt.Errorf("create state of lab %s: %w", name, err)
	}
	if err := l.claim(); err != nil {
		return nil, fmt.Errorf("create lab: %w", err)
	}
	var made []string
	defer func() {
		if err != nil {
			for _, ns := range made {
				err = errors.Join(err, deleteNS(ns))
			}
			err = errors.Join(err, l.removeDir())
		}
	}()
	if err := os.Mkdir(filepath.Join(l.Dir, "guests"), 0o700); err != nil {
		return nil, fmt.Errorf("create state of lab %s: %w", name, err)
	}
	for _, ns := range []string{l.hostNS(), l.clientNS()} {
		if err := newNS(ns); errors.Is(err, fs.ErrExist) {
			return nil, fmt.Errorf("create lab %s: %w: `unnest clean` removes what killed runs left", name, err)
		} else if err != nil {
			return nil, fmt.Errorf("create lab %s: %w", name, err)
		}
		made = append(made, ns)
		if err := Do(nsPath(ns), l.markNS); err != nil {
			return nil, fmt.Errorf("create lab %s: %w", name, err)
		}
	}
	if err := l.buildNetwork(); err != nil {
		return nil, fmt.Errorf("create network of lab %s: %w", name, err)
	}
	return l, nil
}

// claim makes the state directory and locks it.
func (l *Lab) claim() error {
	return statefile.WhileLocked(filepath.Dir(l.Dir), func() error {
		_ = unix.Rmdir(l.Dir) // an empty one, which a killed command has not marked
		if err := l.makeDir(); !errors.Is(err, fs.ErrExist) {
			return err
		}
		if l.check() != nil {
			return fmt.Errorf("%s is not of a lab: move it away, or set UNNEST_STATE to another directory", l.Dir)
		}
		lock, err := lockDir(l.Dir)
		if err != nil {
			return err
		}
		return errors.Join(fmt.Errorf("%w: %s", ErrExists, l.Name), lock.Close())
	})
}

// makeDir makes, marks and locks the state directory, which must not exist. That of all labs is locked.
func (l *Lab) makeDir() (err error) {
	if err = os.Mkdir(l.Dir, 0o700); err == nil {
		err = os.WriteFile(l.mark(), nil, 0o600)
	}
	if err == nil {
		l.lock, err = lockDir(l.Dir)
	}
	return err
}

// mark is the file that tells the state directory of a lab from any other directory. Without it nothing is removed.
func (l *Lab) mark() string { return filepath.Join(l.Dir, "unnest-lab") }

// check returns nil if the directory is that of a lab. The error wraps fs.ErrNotExist if not.
func (l *Lab) check() error {
	_, err := os.Lstat(l.mark())
	return err
}

// Open opens the persistent lab name and locks it. One whose owner was killed is none: see Clean.
func Open(name string) (l *Lab, err error) {
	if l, err = View(name); err != nil {
		return nil, err
	}
	err = statefile.WhileLocked(filepath.Dir(l.Dir), func() error {
		if l, err = View(name); err == nil {
			l.lock, err = lockDir(l.Dir)
		}
		if err != nil {
			return err
		}
		if _, err := os.Stat(l.persistentMark()); err != nil {
			return errors.Join(fmt.Errorf("%w: %s: the command that made it was killed: `unnest clean` removes what it left", ErrNoLab, name), l.unlock())
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return l, nil
}

// View returns the existing lab name without locking it, to inspect it and to reach its
// guests.
func View(name string) (*Lab, error) {
	l := newLab(name)
	switch err := l.check(); {
	case errors.Is(err, fs.ErrNotExist):
		return nil, fmt.Errorf("%w: %s", ErrNoLab, name)
	case errors.Is(err, fs.ErrPermission):
		return nil, fmt.Errorf("find lab %s: %w: run unnest with sudo", name, err)
	case err != nil:
		return nil, fmt.Errorf("find lab %s: %w", name, err)
	}
	return l, nil
}

// lockDir locks a lab's state directory. The directory is made, locked and removed while that of all labs is locked, so nobody
// locks one that is not complete or that its owner removes.
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

// Busy reports whether another process owns the lab.
func (l *Lab) Busy() bool {
	return l.lock == nil && errors.Is(statefile.WhileLocked(filepath.Dir(l.Dir), func() error {
		lock, err := lockDir(l.Dir)
		return errors.Join(err, lock.Close())
	}), ErrInUse)
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

// Close kills the processes of the lab, then unmounts the exports that its daemon has
// prepared, and removes its namespaces, with all bridges, NICs and rules in them, its routes and its
// state directory. It tries every step and joins the errors. Only the lab's owner may call
// it.
func (l *Lab) Close() error {
	namespaces, err := l.namespaces()
	errs := []error{err, l.killProcesses(namespaces)}
	for _, ns := range namespaces {
		errs = append(errs, deleteNS(ns))
	}
	// If this fails, the directory stays: volumes may be mounted in it, and it lists the routes.
	if err := errors.Join(share.CloseOwned(l.Dir), l.removeRoutes()); err != nil {
		errs = append(errs, err, l.unlock())
	} else {
		errs = append(errs, l.removeDir())
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("remove lab %s: %w", l.Name, err)
	}
	return nil
}

// removeDir removes the state directory and unlocks the lab.
func (l *Lab) removeDir() error {
	err := statefile.WhileLocked(filepath.Dir(l.Dir), func() error {
		entries, err := os.ReadDir(l.Dir)
		for _, e := range entries {
			if path := filepath.Join(l.Dir, e.Name()); path != l.mark() {
				err = errors.Join(err, os.RemoveAll(path))
			}
		}
		if err != nil {
			return err
		}
		return os.RemoveAll(l.Dir) // the mark last: what a killed removal leaves is still the lab's
	})
	if errors.Is(err, fs.ErrNotExist) { // the state directory was removed already, with others
		err = nil
	}
	return errors.Join(err, l.unlock())
}

func (l *Lab) unlock() error {
	if l.lock == nil {
		return nil
	}
	return l.lock.Close()
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
		if e.IsDir() && validName.MatchString(e.Name()) && newLab(e.Name()).check() == nil {
			names = append(names, e.Name())
		}
	}
	return names, nil
}
