package guest

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"
)

// CacheDir is where guest images are kept: $UNNEST_CACHE, else unnest in the
// user's cache directory, else /var/cache/unnest.
func CacheDir() string {
	if dir := os.Getenv("UNNEST_CACHE"); dir != "" {
		return dir
	}
	if dir, err := os.UserCacheDir(); err == nil {
		return filepath.Join(dir, "unnest")
	}
	return "/var/cache/unnest"
}

// keptFor is how long the cache keeps what nobody asks for any more: each version of
// the programs makes images of its own, of half a gigabyte. A guest's QEMU has its files
// open, so that one that has been up for longer keeps them.
const keptFor = 30 * 24 * time.Hour

// cached reports whether the cache has a directory, which is kept for longer then.
func cached(dir string) bool {
	if _, err := os.Stat(dir); err != nil {
		return false
	}
	now := time.Now()
	_ = os.Chtimes(dir, now, now) // a cache that cannot be written to is not tidied either
	return true
}

// removeStale removes images and unpacked Debians that nobody has asked for in
// keptFor. The cache is locked.
func (b *Builder) removeStale() error {
	var errs []error
	for _, pattern := range []string{"image-*", "debian-*"} {
		found, err := filepath.Glob(filepath.Join(b.Cache, pattern))
		errs = append(errs, err)
		for _, dir := range found {
			if info, err := os.Stat(dir); err == nil && time.Since(info.ModTime()) > keptFor {
				b.say("removing %s: nobody has asked for it in %d days", dir, keptFor/(24*time.Hour))
				errs = append(errs, os.RemoveAll(dir))
			}
		}
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("tidy the image cache: %w", err)
	}
	return nil
}
