package guest

import (
	"os"
	"path/filepath"
	"testing"
)

// Contents are files of an image, also in place of those of Files, and part of its digest.
func TestContents(t *testing.T) {
	file := filepath.Join(t.TempDir(), "script")
	if err := os.WriteFile(file, []byte("from a file"), 0o755); err != nil {
		t.Fatal(err)
	}
	digest := func(contents map[string][]byte) string {
		b := Builder{Files: map[string]string{"/bin/a": file, "/bin/b": file}, Contents: contents}
		files, err := b.readFiles(AMD64)
		if err != nil {
			t.Fatal(err)
		}
		for path, want := range contents {
			if string(files[path]) != string(want) {
				t.Errorf("%s is %q, want %q", path, files[path], want)
			}
		}
		if string(files["/bin/a"]) != "from a file" {
			t.Errorf("/bin/a is %q", files["/bin/a"])
		}
		d, err := DefaultRecipe().Digest(files)
		if err != nil {
			t.Fatal(err)
		}
		return d
	}
	if one, other := digest(map[string][]byte{"/bin/b": []byte("1")}), digest(map[string][]byte{"/bin/b": []byte("2")}); one == other {
		t.Errorf("images of different contents have the digest %s", one)
	}
}
