package image

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

// CacheDir is the directory of guest images: $UNNEST_CACHE, or unnest in the user's
// cache directory, or /var/cache/unnest. The path is absolute.
func CacheDir() string {
	dir := os.Getenv("UNNEST_CACHE")
	if absolute, err := filepath.Abs(dir); err == nil && dir != "" {
		return absolute
	}
	if dir, err := os.UserCacheDir(); err == nil {
		return filepath.Join(dir, "unnest")
	}
	return "/var/cache/unnest"
}

// imagePrefix begins the names of the directories of images in the cache.
const imagePrefix = "image-"

// Cached reports whether a cache has a guest image.
func Cached(cache string) bool {
	found, err := filepath.Glob(filepath.Join(cache, imagePrefix+"*", "root.ext4"))
	return err == nil && len(found) > 0
}

// FreeDisk returns the free bytes of the file system that has dir, or will have it: that of the
// first directory above that exists. One that is read-only is an error.
func FreeDisk(dir string) (uint64, error) {
	for {
		var fs unix.Statfs_t
		err := unix.Statfs(dir, &fs)
		if err == nil && fs.Flags&unix.ST_RDONLY != 0 {
			err = unix.EROFS
		}
		if err == nil {
			return fs.Bavail * uint64(fs.Frsize), nil
		}
		parent := filepath.Dir(dir)
		if !errors.Is(err, unix.ENOENT) || parent == dir {
			return 0, fmt.Errorf("find free space of %s: %w", dir, err)
		}
		dir = parent
	}
}

// checkDisk replaces the error of a step by its cause if the disk of the cache is full.
func (b *Builder) checkDisk(err error) error {
	if free, statErr := FreeDisk(b.Cache); err != nil && statErr == nil && free < fullDisk {
		return fmt.Errorf("the disk of %s is full: free some space, or set UNNEST_CACHE to a directory elsewhere", b.Cache)
	}
	return err
}

// fullDisk is less than what a package takes, in bytes.
const fullDisk = 16 << 20

// MarkUsed reports whether dir is in the cache, and marks it as used.
func MarkUsed(dir string) bool {
	if _, err := os.Stat(dir); err != nil {
		return false
	}
	now := time.Now()
	_ = os.Chtimes(dir, now, now) // a read-only cache is not cleaned either
	return true
}

// The locks of the cache, and what their owner does.
var (
	imageLock    = cacheLock{"lock", "builds an image"}
	snapshotLock = cacheLock{"snapshot.lock", "freezes a guest"}
)

// lockInterval is how often a lock is tried that another process has.
const lockInterval = 20 * time.Millisecond

type cacheLock struct{ file, owner string }

// lock locks a part of the cache for this process.
func (b *Builder) lock(ctx context.Context, l cacheLock) (unlock func(), err error) {
	if err := os.MkdirAll(b.Cache, 0o755); err != nil {
		return nil, fmt.Errorf("create image cache: %w", err)
	}
	f, err := os.OpenFile(filepath.Join(b.Cache, l.file), os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, fmt.Errorf("lock image cache: %w", err)
	}
	for reported := false; ; {
		err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if err == nil {
			return func() { _ = f.Close() }, nil
		}
		if !errors.Is(err, unix.EWOULDBLOCK) {
			return nil, errors.Join(fmt.Errorf("lock image cache %s: %w", b.Cache, err), f.Close())
		}
		if !reported {
			b.report("waiting for another unnest that %s in %s", l.owner, b.Cache)
			reported = true
		}
		select {
		case <-ctx.Done():
			return nil, errors.Join(context.Cause(ctx), f.Close())
		case <-time.After(lockInterval):
		}
	}
}

// partSuffix ends the names of directories that are being made, or were not completed.
const partSuffix = ".part"

// whole creates the directory path with the content that fill makes, completely or not
// at all.
func (b *Builder) whole(path string, fill func(tmp string) error) error {
	tmp := path + partSuffix
	if err := os.RemoveAll(tmp); err != nil {
		return fmt.Errorf("remove unfinished %s: %w", tmp, err)
	}
	err := os.Mkdir(tmp, 0o755)
	if err == nil {
		err = fill(tmp)
	}
	if err == nil {
		err = Sync(tmp)
	}
	if err == nil {
		err = os.Rename(tmp, path)
	}
	if err != nil {
		return errors.Join(err, os.RemoveAll(tmp))
	}
	return nil
}

// Sync writes the file system of dir to its disk. What gets its name in the cache after that is whole, also after a power cut:
// nobody looks at its content again.
func Sync(dir string) error {
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(unix.Syncfs(int(f.Fd())), f.Close())
}

// snapshotPrefix begins the names of the directories of snapshots in the cache.
const snapshotPrefix = "snapshot-"

// SnapshotDir is the directory in a cache of the snapshot that depends on inputs.
func SnapshotDir(cache string, inputs []string) string {
	return filepath.Join(cache, snapshotPrefix+digest(inputs))
}

// LockSnapshots locks the snapshots in the cache for this process. If another process has
// them, it waits.
func (b *Builder) LockSnapshots(ctx context.Context) (unlock func(), err error) {
	return b.lock(ctx, snapshotLock)
}

// MakeSnapshot makes a directory of SnapshotDir with the content that fill makes,
// completely or not at all. Before, it removes unfinished snapshots, and what the cache has
// too much. The snapshots must be locked.
func (b *Builder) MakeSnapshot(ctx context.Context, dir string, fill func(tmp string) error) error {
	if err := b.prune(ctx, snapshotPrefix); err != nil {
		return err
	}
	if err := b.whole(dir, fill); err != nil {
		return fmt.Errorf("freeze a guest: %w", err)
	}
	return nil
}
