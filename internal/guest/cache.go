package guest

import (
	"os"
	"path/filepath"
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
