package daemon

import (
	"encoding/json"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"unnest/internal/hostd/ipam"
)

// Whatever is in a guest's record and in the file of cooling addresses: the daemon starts,
// a record that is read is one that could be written, and no address rests longer than the
// cool-down.
func FuzzStateFiles(f *testing.F) {
	record, err := json.Marshal(goodRecord())
	if err != nil {
		f.Fatal(err)
	}
	cooling, err := json.Marshal([]ipam.Cooling{{Until: time.Now().Add(time.Hour), Guest: "node1"}})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(record, cooling)
	f.Add([]byte(`{"name":"node1"}`), []byte(`[{"addr":"10.9.0.7","until":"9999-12-31T23:59:59Z","guest":"x"}]`))
	f.Add([]byte(`{`), []byte(`{}`))
	dir := f.TempDir()
	log := slog.New(slog.NewTextHandler(io.Discard, nil))
	p := testPolicy().Tenants[0]
	f.Fuzz(func(t *testing.T, record, cooling []byte) {
		put := func(path string, content []byte) {
			if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, content, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		put(RecordPath(dir, "node1"), record)
		put(filepath.Join(dir, "cooling", p.Name+".json"), cooling)
		if r, err := readRecord(dir, "node1", nil); err == nil {
			written, err := json.Marshal(r)
			if err != nil {
				t.Fatal(err)
			}
			put(RecordPath(dir, "node1"), written)
			if again, err := readRecord(dir, "node1", nil); err != nil || !again.same(r) {
				t.Errorf("record %+v is read back as %+v, %v", r, again, err)
			}
		}
		made, err := newTenant(p, dir, log, uncontained)
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
