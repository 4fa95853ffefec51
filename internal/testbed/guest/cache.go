package guest

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"
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

// keepFor is how long an unused image stays in the cache. Each version of our binaries
// makes images of its own, of half a gigabyte. A running QEMU has its files open, so a
// guest can run longer.
const keepFor = 30 * 24 * time.Hour

// cached reports whether dir is in the cache, and marks it as used.
func cached(dir string) bool {
	if _, err := os.Stat(dir); err != nil {
		return false
	}
	now := time.Now()
	_ = os.Chtimes(dir, now, now) // a read-only cache is not cleaned either
	return true
}

// removeStale removes images and unpacked Debians that were not used within keepFor.
// The cache must be locked.
func (b *Builder) removeStale() error {
	var errs []error
	for _, pattern := range []string{"image-*", "debian-*"} {
		found, err := filepath.Glob(filepath.Join(b.Cache, pattern))
		errs = append(errs, err)
		for _, dir := range found {
			if info, err := os.Stat(dir); err == nil && time.Since(info.ModTime()) > keepFor {
				b.report("removing %s, unused for %d days", dir, keepFor/(24*time.Hour))
				errs = append(errs, os.RemoveAll(dir))
			}
		}
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("clean the image cache: %w", err)
	}
	return nil
}
