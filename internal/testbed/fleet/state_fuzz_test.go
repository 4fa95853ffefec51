package fleet

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// State that was read, written and read again is the same.
func FuzzReadState(f *testing.F) {
	f.Add([]byte(`{"index":3,"pid":1,"accelerator":"tcg","vcpus":2,"memory":1073741824,"slots":8,"address":"10.200.0.4:22","host_key":"ssh-ed25519 AAAA","started":"2026-11-23T06:00:00Z"}`))
	f.Add([]byte(`{"nested":{},"arch":"s390x","memory":-1}`))
	f.Fuzz(func(t *testing.T, content []byte) {
		dir := t.TempDir()
		path := filepath.Join(dir, stateFile)
		if err := os.WriteFile(path, content, 0o600); err != nil {
			t.Fatal(err)
		}
		n, err := readState(dir)
		if err != nil {
			return
		}
		if err := writeJSON(path, n); err != nil {
			t.Fatal(err)
		}
		again, err := readState(dir)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(n, again); diff != "" {
			t.Error(diff)
		}
	})
}
