package share

import (
	"errors"
	"os"
	"path"

	"golang.org/x/sys/unix"
)

// Maker is the guest for which the directory of a volume is made.
type Maker struct {
	Guest string // one element of a path, not "."
	// Admit returns an error unless a guest that has made so many volumes may make another.
	Admit     func(made int) error
	Ephemeral bool // the volume ends when no guest has it any more
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
	files, err := names(d.root, by.dir())
	if err != nil {
		return nil, err
	}
	made := 0
	for _, name := range files {
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
	if err := d.mark(makersDir, by.Guest); err != nil {
		return err
	}
	d.maker = &by
	return nil
}

// unclaim undoes claim.
func (d *Directory) unclaim(by Maker) error {
	return errors.Join(remove(d.root, by.file(d.id), 0), remove(d.root, by.dir(), unix.AT_REMOVEDIR), remove(d.root, makersDir, unix.AT_REMOVEDIR))
}

// exists reports whether a directory has an entry. In doubt it has.
func exists(in *os.File, name string) bool {
	var s unix.Stat_t
	return !errors.Is(unix.Fstatat(int(in.Fd()), name, &s, unix.AT_SYMLINK_NOFOLLOW), unix.ENOENT)
}
