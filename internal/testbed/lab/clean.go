package lab

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"unnest.io/unnest/internal/hostd/statefile"
)

// Reap removes the labs of this state directory whose owner died without removing
// them, and returns their names. Persistent labs and those in use stay.
func Reap(ctx context.Context) ([]string, error) {
	names, err := List()
	if err != nil {
		return nil, err
	}
	var dirs []string
	for _, name := range names {
		dirs = append(dirs, filepath.Join(Root(), name))
	}
	removed, err := removeDead(ctx, dirs, false)
	for i := range removed {
		removed[i] = filepath.Base(removed[i])
	}
	return removed, err
}

// Clean removes all labs whose owner died without removing them, also those of other
// state directories and those whose state directory is gone, and returns their state
// directories. With dryRun it only lists them. Persistent labs and those in use stay.
// With names, it considers the labs with these names only.
func Clean(ctx context.Context, dryRun bool, names ...string) ([]string, error) {
	dirs, err := allDirs()
	if len(names) > 0 {
		dirs = slices.DeleteFunc(dirs, func(dir string) bool { return !slices.Contains(names, filepath.Base(dir)) })
	}
	removed, removeErr := removeDead(ctx, dirs, dryRun)
	return removed, errors.Join(err, removeErr)
}

// allDirs returns the state directories of all labs that can be found: below Root, in
// the marks of network namespaces, and in the command lines of guests and daemons.
func allDirs() ([]string, error) {
	names, err := List()
	marks, markErr := marks()
	running, runErr := runningDirs()
	dirs := running
	for ns, dir := range marks {
		if filepath.IsAbs(dir) && strings.HasPrefix(ns, nsPrefix+filepath.Base(dir)) {
			dirs = append(dirs, dir)
		}
	}
	for _, name := range names {
		dirs = append(dirs, filepath.Join(Root(), name))
	}
	slices.Sort(dirs)
	return slices.Compact(dirs), errors.Join(err, markErr, runErr)
}

// runningDirs returns the state directories below Root in the command lines of QEMU
// and unnest processes.
func runningDirs() (dirs []string, err error) {
	dir := regexp.MustCompile(regexp.QuoteMeta(Root()) + `/[a-z0-9-]+`)
	_, err = find(func(p process) bool {
		for _, found := range dir.FindAll(p.cmdline, -1) {
			if lab := string(found); p.uses(lab) && (p.program() == "unnest" || namesDir(p.cmdline, lab+"/guests")) {
				dirs = append(dirs, lab)
			}
		}
		return false
	})
	return dirs, err
}

// removeDead removes the dead ones of the labs with the state directories dirs. If it cannot remove one, it goes on with the next.
func removeDead(ctx context.Context, dirs []string, dryRun bool) (removed []string, err error) {
	for _, dir := range dirs {
		if ctx.Err() != nil {
			return removed, errors.Join(err, ctx.Err())
		}
		l, failed := openDead(dir, dryRun)
		if l != nil && dryRun {
			failed = l.unlock()
		} else if l != nil {
			failed = l.Close()
		}
		if l != nil && failed == nil {
			removed = append(removed, dir)
		}
		err = errors.Join(err, failed)
	}
	return removed, err
}

// openDead opens the lab with the state directory dir, and makes the directory if it is gone, except for a dry run. It returns
// nil if the lab is in use or persistent, or if the directory is not of a lab.
func openDead(dir string, dryRun bool) (*Lab, error) {
	l := &Lab{Name: filepath.Base(dir), Dir: dir}
	if !validName.MatchString(l.Name) {
		return nil, nil
	}
	err := statefile.WhileLocked(filepath.Dir(dir), func() (err error) {
		if _, err = os.Lstat(dir); errors.Is(err, fs.ErrNotExist) && !dryRun { // an owner makes it first, and removes it last
			return l.makeDir()
		} else if err != nil {
			return err
		}
		if l.check() != nil {
			return ErrNoLab
		}
		if l.lock, err = lockDir(dir); err != nil {
			return err
		}
		if _, err := os.Stat(l.persistentMark()); err == nil {
			return errors.Join(ErrInUse, l.lock.Close())
		}
		return nil
	})
	switch {
	case errors.Is(err, ErrInUse), errors.Is(err, ErrNoLab):
		return nil, nil
	case errors.Is(err, fs.ErrNotExist): // with the directory of all labs
		return l, nil
	case err != nil:
		return nil, err
	}
	return l, nil
}

// maxAlias is the size of the kernel's buffer for the alias of a link (IFALIASZ).
const maxAlias = 256

// markNS writes the lab's state directory into the alias of lo in the calling thread's
// network namespace. The mark names the owner of the namespace for Clean and Close.
func (l *Lab) markNS() error {
	lo, err := netlink.LinkByName("lo")
	if err == nil && len(l.Dir) < maxAlias {
		err = netlink.LinkSetAlias(lo, l.Dir)
	}
	if err != nil {
		return fmt.Errorf("mark network namespace: %w", err)
	}
	return nil
}

// marks returns the state directories in the marks of all network namespaces of labs, by
// the names of the namespaces. The mark of a new namespace is empty.
func marks() (map[string]string, error) {
	found := map[string]string{}
	paths, err := filepath.Glob(nsPath(nsPrefix + "*"))
	for _, path := range paths {
		nsErr := Do(path, func() error {
			lo, err := netlink.LinkByName("lo")
			if err != nil {
				return err
			}
			dir := lo.Attrs().Alias
			if filepath.IsAbs(dir) {
				dir = resolve(dir)
			}
			found[filepath.Base(path)] = dir
			return nil
		})
		switch {
		case errors.Is(nsErr, unix.EINVAL): // a name without a namespace: being made or removed
			found[filepath.Base(path)] = ""
		case !errors.Is(nsErr, fs.ErrNotExist):
			err = errors.Join(err, nsErr)
		}
	}
	return found, err
}

// namespaces returns the names of the lab's network namespaces: those that have its mark,
// also under a name of another version, and those without a mark that have its names,
// because Create was killed in between.
func (l *Lab) namespaces() (names []string, err error) {
	marks, err := marks()
	for ns, dir := range marks {
		if dir == l.Dir {
			names = append(names, ns)
		}
	}
	for _, ns := range []string{l.hostNS(), l.clientNS()} {
		if dir, ok := marks[ns]; ok && dir == "" {
			names = append(names, ns)
		}
	}
	return names, err
}
