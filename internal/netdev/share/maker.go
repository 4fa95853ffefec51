package share

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"

	"golang.org/x/sys/unix"
)

// Maker is the guest for which the directory of a volume is made.
type Maker struct {
	Guest string // one element of a path, not "."
	// Admit returns an error unless a guest that has made so many volumes may make another.
	Admit func(made int) error
}

// makersDir has a directory for each guest, with an empty file for each volume that the
// guest has made, named by its ID. No pod can have this name. A file whose volume is gone
// does not count.
const makersDir = ".makers"

func (m Maker) dir() string { return path.Join(makersDir, m.Guest) }

func (m Maker) file(id ID) string { return path.Join(m.dir(), id.String()) }

// admit asks a maker whether it may make another volume. It returns the files of volumes
// that are gone.
func (d *Directory) admit(by Maker) (gone []string, err error) {
	marks, err := openDirectory(d.root, by.dir(), beneath)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, by.Admit(0)
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrDirectory, err)
	}
	defer marks.Close()
	names, err := marks.Readdirnames(-1)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrDirectory, err)
	}
	made := 0
	for _, name := range names {
		switch id, ok := ParseID(name); {
		case !ok: // not ours
		case exists(d.root, path.Join(id.Pod, id.Name)):
			made++
		default:
			gone = append(gone, path.Join(by.dir(), name))
		}
	}
	return gone, by.Admit(made)
}

// claim records that a guest makes the volume, before it is made, so that a daemon that is
// killed leaves no volume that does not count.
func (d *Directory) claim(by Maker) error {
	gone, err := d.admit(by)
	for _, name := range gone {
		err = errors.Join(err, unix.Unlinkat(int(d.root.Fd()), name, 0))
	}
	if err != nil {
		return err
	}
	for _, dir := range []string{makersDir, by.dir()} {
		if err := unix.Mkdirat(int(d.root.Fd()), dir, 0o700); err != nil && !errors.Is(err, unix.EEXIST) {
			return fmt.Errorf("%w: %w", ErrDirectory, &fs.PathError{Op: "mkdir", Path: dir, Err: err})
		}
	}
	fd, err := unix.Openat2(int(d.root.Fd()), by.file(d.id), &unix.OpenHow{Flags: unix.O_WRONLY | unix.O_CREAT | unix.O_CLOEXEC, Mode: 0o600, Resolve: beneath})
	if err != nil {
		return fmt.Errorf("%w: %w", ErrDirectory, &fs.PathError{Op: "create", Path: by.file(d.id), Err: err})
	}
	d.maker = &by
	return unix.Close(fd)
}

// exists reports whether a directory has an entry. In doubt it has.
func exists(in *os.File, name string) bool {
	var s unix.Stat_t
	return !errors.Is(unix.Fstatat(int(in.Fd()), name, &s, unix.AT_SYMLINK_NOFOLLOW), unix.ENOENT)
}
