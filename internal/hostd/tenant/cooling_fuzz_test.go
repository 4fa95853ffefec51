package tenant

import (
	"encoding/json"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"unnest.io/unnest/internal/hostd/ipam"
)

// Whatever is in the file of cooling addresses: the daemon starts, and no address rests
// longer than the cool-down.
func FuzzCoolingFile(f *testing.F) {
	cooling, err := json.Marshal([]ipam.Cooling{{Until: time.Now().Add(time.Hour), Guest: "node1"}})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(cooling)
	f.Add([]byte(`[{"addr":"10.9.0.7","until":"9999-12-31T23:59:59Z","guest":"x"}]`))
	f.Add([]byte(`{}`))
	dir, p := f.TempDir(), tenantPolicy()
	path := filepath.Join(dir, "cooling", p.Name+".json")
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, content []byte) {
		if err := os.WriteFile(path, content, 0o600); err != nil {
			t.Fatal(err)
		}
		made, err := New(p, dir, slog.New(slog.DiscardHandler), uncontained)
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range made.cooling() {
			if rest := time.Until(c.Until); rest > p.Cooldown {
				t.Errorf("%s rests %v more, cool-down is %v", c.Addr, rest, p.Cooldown)
			}
		}
	})
}
