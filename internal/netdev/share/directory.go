package share

import (
	"crypto/subtle"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// Digest is the digest of a pod's key.
type Digest [32]byte

// Errors of OpenVolume.
var (
	ErrKey       = errors.New("key does not match the pod's volumes: use the key of the pod's other guests")
	ErrDirectory = errors.New("cannot use the directory for volumes")
)

// keyFile holds the digest of a pod's key, in the pod's directory. No volume can have
// this name.
const keyFile = ".key"

// OpenVolume returns the directory of a pod's volume, DIR/POD/NAME, and makes it if
// necessary. dir is the tenant's: absolute, and accessible to root only, since guests
// put files of any owner and mode there. The first volume of a pod sets the pod's
// key; for another key the error wraps ErrKey. No part of the path may be a symbolic
// link, and guests can write to none but the last.
func OpenVolume(dir string, id ID, key Digest) (path string, err error) {
	if err := id.Validate(); err != nil {
		return "", err
	}
	root, err := openRoot(dir)
	if err != nil {
		return "", err
	}
	defer root.Close()
	pod, err := makeDirectory(root, id.Pod, 0o700)
	if err != nil {
		return "", fmt.Errorf("%w: %w", ErrDirectory, err)
	}
	defer pod.Close()
	if err := checkKey(filepath.Join(dir, id.Pod, keyFile), key); err != nil {
		return "", err
	}
	volume, err := makeDirectory(pod, id.Name, 0o755)
	if err != nil {
		return "", fmt.Errorf("%w: %w", ErrDirectory, err)
	}
	return filepath.Join(dir, id.Pod, id.Name), volume.Close()
}

// openRoot opens a tenant's directory, if only root can access it.
func openRoot(dir string) (*os.File, error) {
	root, err := os.OpenFile(dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrDirectory, err)
	}
	var s unix.Stat_t
	if err = unix.Fstat(int(root.Fd()), &s); err == nil && (s.Uid != 0 || s.Mode&0o077 != 0) {
		err = fmt.Errorf("%w: %s has mode %#o and owner %d: chown root and chmod 0700, because guests put setuid files there", ErrDirectory, dir, s.Mode&0o777, s.Uid)
	}
	if err != nil {
		return nil, errors.Join(err, root.Close())
	}
	return root, nil
}

// makeDirectory opens a directory in another, and makes it if necessary.
func makeDirectory(parent *os.File, name string, mode uint32) (*os.File, error) {
	at := int(parent.Fd())
	if err := unix.Mkdirat(at, name, mode); err != nil && !errors.Is(err, unix.EEXIST) {
		return nil, &fs.PathError{Op: "mkdir", Path: filepath.Join(parent.Name(), name), Err: err}
	}
	fd, err := unix.Openat2(at, name, &unix.OpenHow{
		Flags: unix.O_PATH | unix.O_DIRECTORY | unix.O_CLOEXEC, Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS,
	})
	path := filepath.Join(parent.Name(), name)
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: path, Err: err}
	}
	return os.NewFile(uintptr(fd), path), nil
}

// checkKey compares the key with the one in the file, or writes the file atomically
// if it does not exist.
func checkKey(path string, key Digest) error {
	kept, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		if kept, err = key[:], writeKey(path, key); errors.Is(err, fs.ErrExist) { // another call was faster
			kept, err = os.ReadFile(path)
		}
	}
	switch {
	case err != nil:
		return fmt.Errorf("%w: %w", ErrDirectory, err)
	case subtle.ConstantTimeCompare(kept, key[:]) != 1:
		return ErrKey
	}
	return nil
}

func writeKey(path string, key Digest) (err error) {
	f, err := os.CreateTemp(filepath.Dir(path), keyFile+".*") // mode 0600
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.Remove(f.Name())) }()
	_, err = f.Write(key[:])
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	return os.Link(f.Name(), path)
}
