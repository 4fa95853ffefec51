package share

import (
	"crypto/subtle"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// Digest is the digest of a pod's key.
type Digest [32]byte

// ErrKey is wrapped when a pod's volumes have another key.
var ErrKey = errors.New("key does not match the pod's volumes: use the key of the pod's other guests")

// keyFile holds the digest of a pod's key, in the pod's directory. No volume can have
// this name. newKeyFile is it before it is complete.
const (
	keyFile    = ".key"
	newKeyFile = ".key.new"
)

// Directory is the open directory of a pod's volume, DIR/POD/NAME.
type Directory struct {
	*os.File
	root, pod     *os.File
	id            ID
	made, madePod bool
	maker         *Maker // nil unless claim has recorded it
}

// CheckVolume returns the error that OpenVolume would return for what exists. It makes
// nothing.
func CheckVolume(dir string, id ID, key Digest, by Maker) error {
	d, err := openPod(dir, id)
	if err != nil {
		return err
	}
	defer d.Close()
	if d.pod != nil {
		if err := d.checkKey(key); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	made := d.pod != nil && exists(d.pod, id.Name)
	if made || !by.Ephemeral {
		err = d.checkLifetime(by)
	}
	if err == nil && !made {
		_, err = d.admit(by)
	}
	return err
}

// OpenVolume opens the directory of a pod's volume, and makes it if necessary. dir is the
// tenant's: absolute, and accessible to root only, since guests put files of any owner
// and mode there. The first volume of a pod sets the pod's key; for another key the error
// wraps ErrKey. A volume that is made counts as one of by; if it is ephemeral, by has it until EndUnused. No part of the path may be a
// symbolic link, and guests can write to none but the last. Calls for one tenant must not
// overlap.
func OpenVolume(dir string, id ID, key Digest, by Maker) (_ *Directory, err error) {
	d, err := openPod(dir, id)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, d.Discard(), d.Close())
		}
	}()
	if d.pod == nil {
		if d.pod, d.madePod, err = makeDirectory(d.root, id.Pod, 0o700); err != nil {
			return nil, err
		}
	}
	if err := d.setKey(key); err != nil {
		return nil, err
	}
	if exists(d.pod, id.Name) || !by.Ephemeral { // a guest may still have the mark of an ephemeral one that has ended
		err = d.checkLifetime(by)
	}
	if err == nil && !exists(d.pod, id.Name) {
		err = d.claim(by)
	}
	if err == nil && by.Ephemeral {
		err = d.mark(usersDir, by.Guest) // before there is a volume: one without it would stay
	}
	if err != nil {
		return nil, err
	}
	d.File, d.made, err = makeDirectory(d.pod, id.Name, 0o755)
	return d, err
}

// openPod opens a tenant's directory, if only root can access it, and that of the pod,
// if it exists.
func openPod(dir string, id ID) (d *Directory, err error) {
	if err := id.Validate(); err != nil {
		return nil, err
	}
	d = &Directory{id: id}
	if d.root, err = openTrusted(dir); err != nil {
		return nil, err
	}
	s, err := status(d.root)
	if err == nil && s.Mode&0o077 != 0 {
		err = fmt.Errorf("%s has mode %#o: chmod 0700, because guests put setuid files there", dir, s.Mode&0o777)
	}
	if err == nil {
		if d.pod, err = openDirectory(d.root, id.Pod, beneath); errors.Is(err, fs.ErrNotExist) {
			return d, nil
		}
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("%w: %w", ErrDirectory, err), d.root.Close())
	}
	return d, nil
}

// makeDirectory opens a directory in another, and makes it if necessary.
func makeDirectory(parent *os.File, name string, mode uint32) (_ *os.File, made bool, err error) {
	if err = unix.Mkdirat(int(parent.Fd()), name, mode); err != nil && !errors.Is(err, unix.EEXIST) {
		err = &fs.PathError{Op: "mkdir", Path: filepath.Join(parent.Name(), name), Err: err}
		return nil, false, fmt.Errorf("%w: %w", ErrDirectory, err)
	}
	made = err == nil
	f, err := openDirectory(parent, name, beneath)
	if err == nil && made {
		err = unix.Fchmod(int(f.Fd()), mode) // the umask of the daemon may have taken some away
	}
	if err != nil {
		return nil, made, fmt.Errorf("%w: %w", ErrDirectory, err)
	}
	return f, made, nil
}

// Discard removes what OpenVolume has made, unless it is in use: a directory that is not
// empty stays.
func (d *Directory) Discard() error {
	var err error
	if d.made {
		err = remove(d.pod, d.id.Name, unix.AT_REMOVEDIR)
	}
	if d.maker != nil && !exists(d.pod, d.id.Name) {
		err = errors.Join(err, d.unclaim(*d.maker))
	}
	if d.madePod && d.pod != nil {
		err = errors.Join(err, d.removePod())
	}
	return err
}

// removePod removes the pod's directory and its key, unless it has a volume.
func (d *Directory) removePod() error {
	if !d.onlyKey() {
		return nil
	}
	return errors.Join(remove(d.pod, keyFile, 0), remove(d.root, d.id.Pod, unix.AT_REMOVEDIR))
}

// onlyKey reports whether the pod has no volume.
func (d *Directory) onlyKey() bool {
	names, err := d.pod.Readdirnames(-1)
	return err == nil && (len(names) == 0 || len(names) == 1 && names[0] == keyFile)
}

// Close closes the directory.
func (d *Directory) Close() (err error) {
	for _, f := range []*os.File{d.File, d.pod, d.root} {
		if f != nil {
			err = errors.Join(err, f.Close())
		}
	}
	return err
}

// checkKey compares a key with that of the pod. The error wraps fs.ErrNotExist if the pod
// has none.
func (d *Directory) checkKey(key Digest) error {
	kept, err := d.readKey()
	switch {
	case err != nil:
		return fmt.Errorf("%w: %w", ErrDirectory, err)
	case subtle.ConstantTimeCompare(kept, key[:]) != 1:
		return ErrKey
	}
	return nil
}

func (d *Directory) readKey() ([]byte, error) {
	f, err := d.openKey(keyFile, unix.O_RDONLY, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, 2*int64(len(Digest{}))))
}

// setKey compares a key with that of the pod, or sets it atomically if the pod has none.
func (d *Directory) setKey(key Digest) error {
	err := d.checkKey(key)
	if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := d.writeKey(key); err != nil {
		return fmt.Errorf("%w: %w", ErrDirectory, err)
	}
	return nil
}

// writeKey writes the key of a pod that has none. A daemon that was killed may have left
// an incomplete file.
func (d *Directory) writeKey(key Digest) error {
	f, err := d.openKey(newKeyFile, unix.O_WRONLY|unix.O_CREAT|unix.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	at := int(d.pod.Fd())
	_, err = f.Write(key[:])
	if err = errors.Join(err, f.Sync(), f.Close()); err == nil {
		err = unix.Renameat(at, newKeyFile, at, keyFile)
	}
	if err != nil {
		err = errors.Join(err, unix.Unlinkat(at, newKeyFile, 0))
	}
	return err
}

func (d *Directory) openKey(name string, flags, mode uint64) (*os.File, error) {
	path := filepath.Join(d.pod.Name(), name)
	fd, err := unix.Openat2(int(d.pod.Fd()), name, &unix.OpenHow{Flags: flags | unix.O_CLOEXEC, Mode: mode, Resolve: beneath})
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: path, Err: err}
	}
	return os.NewFile(uintptr(fd), path), nil
}
