// Package rootdir reads and writes files in the root directory of another system, such as an
// unpacked Debian. It resolves symbolic links as that system would after chroot: an absolute
// link leads to a file below the directory, never to one of this host.
//
// No other process may change links below the directory at the same time.
package rootdir

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	securejoin "github.com/cyphar/filepath-securejoin"
)

// Dir is the path of a root directory on this host.
type Dir string

// Path returns the path on this host of a file of the system, with every symbolic link
// followed. The file need not exist.
func (d Dir) Path(name string) (string, error) { return securejoin.SecureJoin(string(d), name) }

// Open opens a file to read it.
func (d Dir) Open(name string) (*os.File, error) { return in(d, name, os.Open) }

// ReadFile returns the content of a file.
func (d Dir) ReadFile(name string) ([]byte, error) { return in(d, name, os.ReadFile) }

// Stat describes a file. A link that leads to nothing below the directory is
// fs.ErrNotExist.
func (d Dir) Stat(name string) (fs.FileInfo, error) { return in(d, name, os.Stat) }

// ReadDir lists a directory.
func (d Dir) ReadDir(name string) ([]os.DirEntry, error) { return in(d, name, os.ReadDir) }

func in[T any](d Dir, name string, open func(string) (T, error)) (T, error) {
	path, err := d.Path(name)
	if err != nil {
		var none T
		return none, err
	}
	return open(path)
}

// Entry returns the path on this host of a name whose directory it makes if necessary. The
// links of the directory are followed, the name itself is not: removing or creating it
// never touches what it is linked to.
func (d Dir) Entry(name string) (string, error) {
	name = filepath.Clean("/" + name)
	dir, err := d.Path(filepath.Dir(name))
	if err == nil {
		err = os.MkdirAll(dir, 0o755)
	}
	return filepath.Join(dir, filepath.Base(name)), err
}

// Only returns the name of the one file that matches a pattern of path/filepath, whose
// last element alone may have wildcards.
func (d Dir) Only(pattern string) (string, error) {
	entries, err := d.ReadDir(filepath.Dir(pattern))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", err
	}
	var found []string
	for _, e := range entries {
		if ok, err := filepath.Match(filepath.Base(pattern), e.Name()); err != nil {
			return "", err
		} else if ok {
			found = append(found, e.Name())
		}
	}
	if len(found) != 1 {
		return "", fmt.Errorf("find %s in %s: want one, found %d", pattern, d, len(found))
	}
	return filepath.Join(filepath.Dir(pattern), found[0]), nil
}
