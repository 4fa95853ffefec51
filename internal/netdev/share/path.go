package share

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// ErrDirectory is wrapped when a directory cannot hold volumes or an export.
var ErrDirectory = errors.New("cannot use the directory for volumes")

// openTrusted opens a directory that belongs to root and that no one else can write or
// replace: each directory and link on the way is root's too. dir is not a link itself.
func openTrusted(dir string) (*os.File, error) {
	err := checkPath(dir, maxLinks)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrDirectory, err)
	}
	parent, err := filepath.EvalSymlinks(filepath.Dir(dir))
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrDirectory, err)
	}
	// The path has no link now, and only root could add one.
	f, err := openDirectory(nil, filepath.Join(parent, filepath.Base(dir)), unix.RESOLVE_NO_SYMLINKS)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrDirectory, err)
	}
	s, err := status(f)
	if err == nil && s.Mode&0o022 != 0 {
		err = fmt.Errorf("%s has mode %#o: chmod go-w, so that only root can write there", dir, s.Mode&0o7777)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("%w: %w", ErrDirectory, err), f.Close())
	}
	return f, nil
}

// maxLinks is the most symbolic links in a path, as in the kernel.
const maxLinks = 40

// CheckPath returns an error unless only root, or the user of this process, can change
// what a path leads to.
func CheckPath(path string) error {
	absolute, err := filepath.Abs(path)
	if err != nil {
		return err
	}
	return checkPath(absolute, maxLinks)
}

// checkPath is CheckPath for an absolute path with so many symbolic links. In a sticky
// directory, such as /tmp, no one can replace what belongs to others.
func checkPath(path string, links int) error {
	for at := range prefixes(path) {
		var s unix.Stat_t
		if err := unix.Lstat(at, &s); err != nil {
			return &fs.PathError{Op: "open", Path: at, Err: err}
		}
		if s.Uid != 0 && int(s.Uid) != os.Geteuid() {
			return fmt.Errorf("%s belongs to user %d, who could replace what is in it: chown root", at, s.Uid)
		}
		switch s.Mode & unix.S_IFMT {
		case unix.S_IFLNK:
			if err := checkLink(at, links-1); err != nil {
				return err
			}
		case unix.S_IFDIR:
			if s.Mode&0o022 != 0 && s.Mode&unix.S_ISVTX == 0 {
				return fmt.Errorf("%s has mode %#o, so others could replace what is in it: chmod go-w", at, s.Mode&0o7777)
			}
		}
	}
	return nil
}

// checkLink checks the path that a symbolic link leads to.
func checkLink(link string, links int) error {
	if links < 0 {
		return &fs.PathError{Op: "open", Path: link, Err: unix.ELOOP}
	}
	target, err := os.Readlink(link)
	if err != nil {
		return err
	}
	if !filepath.IsAbs(target) {
		dir, err := filepath.EvalSymlinks(filepath.Dir(link))
		if err != nil {
			return err
		}
		target = filepath.Join(dir, target)
	}
	return checkPath(target, links)
}

// prefixes yields "/", "/a" and "/a/b" for "/a/b".
func prefixes(path string) func(yield func(string) bool) {
	return func(yield func(string) bool) {
		at := "/"
		if !yield(at) {
			return
		}
		for name := range strings.SplitSeq(strings.Trim(path, "/"), "/") {
			if at = filepath.Join(at, name); !yield(at) {
				return
			}
		}
	}
}

// openDirectory opens a directory at a path in another; nil means that the path is
// absolute. resolve are flags of openat2(2).
func openDirectory(in *os.File, path string, resolve uint64) (*os.File, error) {
	at, name := unix.AT_FDCWD, path
	if in != nil {
		at, name = int(in.Fd()), filepath.Join(in.Name(), path)
	}
	fd, err := unix.Openat2(at, path, &unix.OpenHow{Flags: unix.O_RDONLY | unix.O_DIRECTORY | unix.O_CLOEXEC, Resolve: resolve})
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: name, Err: err}
	}
	return os.NewFile(uintptr(fd), name), nil
}

// beneath are the flags of openat2(2) for names in a directory that a guest may know.
const beneath = unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS

func status(f *os.File) (s unix.Stat_t, err error) {
	return s, unix.Fstat(int(f.Fd()), &s)
}

// CheckFileSystem returns an error that wraps ErrDirectory unless a directory is the root
// of a file system, so that whoever fills the directory fills nothing else.
func CheckFileSystem(dir string) error {
	f, err := openTrusted(dir)
	if err != nil {
		return err
	}
	defer f.Close()
	here, err := status(f)
	var above unix.Stat_t
	if err == nil {
		err = unix.Fstatat(int(f.Fd()), "..", &above, unix.AT_SYMLINK_NOFOLLOW)
	}
	switch {
	case err != nil:
		return fmt.Errorf("%w: %s: %w", ErrDirectory, dir, err)
	case here.Dev == above.Dev:
		return fmt.Errorf("%w: guests could fill the file system of %s: mount one at %s, or set volumesUnbounded: true for the tenant", ErrDirectory, filepath.Dir(dir), dir)
	}
	return nil
}
