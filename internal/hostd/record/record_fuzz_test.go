package record

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
)

// Whatever is in a guest's record: one that is read is one that could be written.
func FuzzRecord(f *testing.F) {
	record, err := json.Marshal(validRecord())
	if err != nil {
		f.Fatal(err)
	}
	f.Add(record)
	f.Add([]byte(`{"name":"node1"}`))
	f.Add([]byte(`{`))
	dir := f.TempDir()
	f.Fuzz(func(t *testing.T, content []byte) {
		put := func(path string, content []byte) {
			if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, content, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		put(Path(dir, "node1"), content)
		if r, err := Read(dir, "node1", nil); err == nil {
			written, err := json.Marshal(r)
			if err != nil {
				t.Fatal(err)
			}
			put(Path(dir, "node1"), written)
			if again, err := Read(dir, "node1", nil); err != nil || !again.Same(r) {
				t.Errorf("record %+v is read back as %+v, %v", r, again, err)
			}
		}
	})
}
