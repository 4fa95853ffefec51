package guest

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
// cache directory, or /var/cache/unnest.
func CacheDir() string {
	if dir := os.Getenv("UNNEST_CACHE"); dir != "" {
		return dir
	}
	if dir, err := os.UserCacheDir(); err == nil {
		return filepath.Join(dir, "unnest")
	}
	return "/var/cache/unnest"
}

// cached reports whether dir is in the cache, and marks it as used.
func cached(dir string) bool {
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
		if err := sleep(ctx, pollInterval); err != nil {
			return nil, errors.Join(err, f.Close())
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
		err = os.Rename(tmp, path)
	}
	if err != nil {
		return errors.Join(err, os.RemoveAll(tmp))
	}
	return nil
}
