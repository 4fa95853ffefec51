package share

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// ErrLifetime is wrapped when a volume exists and ends at another time than is asked for.
var ErrLifetime = errors.New("the volume exists, and is ephemeral for all guests or for none: use another name")

// usersDir has a directory for each guest, with an empty file for each ephemeral volume that
// the guest has, or is about to get. A volume is ephemeral if a guest has such a file.
// What begins with endedPrefix was an ephemeral volume. No pod can have these names.
const (
	usersDir    = ".users"
	endedPrefix = ".ended."
)

// checkLifetime compares what a guest asks for with a volume that exists.
func (d *Directory) checkLifetime(by Maker) error {
	guests, err := names(d.root, usersDir)
	if err != nil {
		return err
	}
	ephemeral := slices.ContainsFunc(guests, func(guest string) bool { return exists(d.root, path.Join(usersDir, guest, d.id.String())) })
	if ephemeral != by.Ephemeral {
		return ErrLifetime
	}
	return nil
}

// Ephemeral returns the ephemeral volumes in a tenant's directory, which may be missing, that a guest has.
func Ephemeral(dir, guest string) (all []ID, err error) {
	files, err := namesIn(dir, path.Join(usersDir, guest))
	for _, name := range files {
		if id, ok := ParseID(name); ok {
			all = append(all, id)
		}
	}
	return all, err
}

// Users returns the guests that have ephemeral volumes in a tenant's directory, which may be missing.
func Users(dir string) ([]string, error) { return namesIn(dir, usersDir) }

// namesIn is names for a path in a tenant's directory.
func namesIn(dir, path string) ([]string, error) {
	root, err := openTrusted(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer root.Close()
	return names(root, path)
}

// EndUnused takes its ephemeral volumes from a guest, except those that it keeps. A volume that
// no other guest has ends: its name is free, and RemoveEnded removes its files. It may be
// called again after a failure. Calls for one tenant, and of OpenVolume, must not overlap.
func EndUnused(dir, guest string, keep func(ID) bool) (ended bool, err error) {
	all, err := Ephemeral(dir, guest)
	if err != nil || !slices.ContainsFunc(all, func(id ID) bool { return !keep(id) }) {
		return false, err
	}
	guests, err := Users(dir)
	if err != nil {
		return false, err
	}
	for _, id := range all {
		if keep(id) {
			continue
		}
		d, openErr := openPod(dir, id)
		if err = errors.Join(err, openErr); openErr != nil {
			continue
		}
		file := func(guest string) string { return path.Join(usersDir, guest, id.String()) }
		var endErr error
		if !slices.ContainsFunc(guests, func(g string) bool { return g != guest && exists(d.root, file(g)) }) {
			endErr, ended = d.end(), true
		}
		if endErr == nil { // the file goes last: without it, the volume would stay
			endErr = remove(d.root, file(guest), 0)
		}
		err = errors.Join(err, endErr, remove(d.root, path.Join(usersDir, guest), unix.AT_REMOVEDIR), remove(d.root, usersDir, unix.AT_REMOVEDIR), d.Close())
	}
	return ended, err
}

// end takes the volume's name away, and removes what else there is of it.
func (d *Directory) end() error {
	if d.pod == nil {
		return nil
	}
	err := unix.Renameat(int(d.pod.Fd()), d.id.Name, int(d.root.Fd()), endedPrefix+d.id.String()+"."+rand.Text())
	if err != nil && !errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("end volume %s: %w", d.id, err)
	}
	guests, err := names(d.root, makersDir)
	for _, guest := range guests {
		err = errors.Join(err, d.unclaim(Maker{Guest: guest}))
	}
	return errors.Join(err, d.removePod())
}

// RemoveEnded removes the files of the volumes in a tenant's directory that have ended. It
// may take long. rm takes no more descriptors for directories that are deep.
func RemoveEnded(dir string) error {
	all, err := namesIn(dir, ".")
	for _, name := range all {
		if !strings.HasPrefix(name, endedPrefix) {
			continue
		}
		if out, rmErr := exec.Command("rm", "-rf", "--one-file-system", "--", filepath.Join(dir, name)).CombinedOutput(); rmErr != nil {
			err = errors.Join(err, fmt.Errorf("remove volume that has ended: %w: %.300s", rmErr, out))
		}
	}
	return err
}

// names lists a directory in another; it is empty if there is none.
func names(in *os.File, dir string) ([]string, error) {
	f, err := openDirectory(in, dir, beneath)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrDirectory, err)
	}
	defer f.Close()
	all, err := f.Readdirnames(-1)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrDirectory, err)
	}
	return all, nil
}

// mark makes an empty file for a volume and a guest in a directory of the tenant's.
func (d *Directory) mark(dir, guest string) error {
	for _, made := range []string{dir, path.Join(dir, guest)} {
		if err := unix.Mkdirat(int(d.root.Fd()), made, 0o700); err != nil && !errors.Is(err, unix.EEXIST) {
			return fmt.Errorf("%w: %w", ErrDirectory, &fs.PathError{Op: "mkdir", Path: made, Err: err})
		}
	}
	file := path.Join(dir, guest, d.id.String())
	fd, err := unix.Openat2(int(d.root.Fd()), file, &unix.OpenHow{Flags: unix.O_WRONLY | unix.O_CREAT | unix.O_CLOEXEC, Mode: 0o600, Resolve: beneath})
	if err != nil {
		return fmt.Errorf("%w: %w", ErrDirectory, &fs.PathError{Op: "create", Path: file, Err: err})
	}
	return unix.Close(fd)
}

// remove removes a file or, with AT_REMOVEDIR, a directory, if it is there. A directory that is not
// empty stays.
func remove(in *os.File, name string, flags int) error {
	err := unix.Unlinkat(int(in.Fd()), name, flags)
	if err == nil || errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENOTEMPTY) {
		return nil
	}
	return &fs.PathError{Op: "remove", Path: filepath.Join(in.Name(), name), Err: err}
}
