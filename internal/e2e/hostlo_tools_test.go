package e2e

import (
	"path/filepath"
	"testing"

	"unnest.io/unnest/internal/testbed/image"
)

// toolPackages are the Debian packages of the servers and clients that the localhost cases
// run.
var toolPackages = []string{"curl", "memcached", "nginx-light", "postgresql-15", "python3", "redis-server"}

// toolPath is a PATH with these tools. Debian's PostgreSQL has its own directory.
const toolPath = "PATH=/usr/lib/postgresql/15/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// toolsImage builds a guest image with these tools and our CNI plugins.
func toolsImage(t *testing.T, binaries string) image.Image {
	t.Helper()
	b := image.Builder{
		Cache: image.CacheDir(),
		Files: map[string]string{
			"/usr/lib/cni/brfusion": filepath.Join(binaries, "unnest-cni"),
			"/usr/lib/cni/hostlo":   filepath.Join(binaries, "unnest-cni"),
		},
		Progress: func(step string) { t.Log(step) },
	}
	image, err := b.Build(t.Context(), image.DefaultRecipe().With(toolPackages...))
	if err != nil {
		t.Fatal(err)
	}
	return image
}
