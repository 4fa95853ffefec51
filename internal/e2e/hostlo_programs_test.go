package e2e

import (
	"path/filepath"
	"testing"

	"unnest/internal/testbed/guest"
)

// foreignPackages are the Debian packages of the programs that the localhost suite
// runs: servers and clients that know nothing of us.
var foreignPackages = []string{"curl", "memcached", "nginx-light", "postgresql-15", "python3", "redis-server"}

// foreignPath is PATH where those are: Debian's PostgreSQL has a directory of its own.
const foreignPath = "PATH=/usr/lib/postgresql/15/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// programsImage is the guest image with these programs beside our CNI plugins.
func programsImage(t *testing.T, programs string) guest.Image {
	t.Helper()
	b := guest.Builder{
		Cache: guest.CacheDir(),
		Files: map[string]string{
			"/usr/lib/cni/brfusion": filepath.Join(programs, "unnest-cni"),
			"/usr/lib/cni/hostlo":   filepath.Join(programs, "unnest-cni"),
		},
		Progress: func(step string) { t.Log(step) },
	}
	image, err := b.Build(t.Context(), guest.DefaultRecipe().With(foreignPackages...))
	if err != nil {
		t.Fatal(err)
	}
	return image
}
