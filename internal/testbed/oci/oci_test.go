package oci

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func sample() Image {
	return Image{
		Name: "localhost/unnest/sample:1", Arch: "amd64", Entrypoint: []string{"/bin/a"},
		Files: map[string][]byte{"/bin/a": []byte("program"), "/etc/x/b": []byte("data")}, Links: map[string]string{"/bin/sh": "a"},
	}
}

// read returns the content of a tar archive: files, "-> target" of links, and "/" of directories.
func read(t *testing.T, content []byte) map[string]string {
	t.Helper()
	files := map[string]string{}
	for r := tar.NewReader(bytes.NewReader(content)); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return files
		}
		if err != nil {
			t.Fatal(err)
		}
		b, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		switch h.Typeflag {
		case tar.TypeDir:
			b = []byte("/")
		case tar.TypeSymlink:
			b = []byte("-> " + h.Linkname)
		}
		files[h.Name] = string(b)
	}
}

// follow returns the blob that a descriptor refers to, which must have its digest and size.
func follow(t *testing.T, files map[string]string, descriptor any) string {
	t.Helper()
	d := descriptor.(map[string]any)
	digest := strings.TrimPrefix(d["digest"].(string), "sha256:")
	content := files["blobs/sha256/"+digest]
	sum := sha256.Sum256([]byte(content))
	if hex.EncodeToString(sum[:]) != digest || float64(len(content)) != d["size"] {
		t.Errorf("blob %s has other content, or size %d", digest, len(content))
	}
	return content
}

func parse(t *testing.T, content string) (m map[string]any) {
	t.Helper()
	if err := json.Unmarshal([]byte(content), &m); err != nil {
		t.Fatal(err)
	}
	return m
}

// An engine finds the layer and the configuration from the index.
func TestArchive(t *testing.T) {
	var archive, again bytes.Buffer
	if err := errors.Join(sample().Write(&archive), sample().Write(&again)); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(archive.Bytes(), again.Bytes()) {
		t.Error("two archives of one image differ")
	}
	files := read(t, archive.Bytes())
	index := parse(t, files["index.json"])["manifests"].([]any)[0]
	names := index.(map[string]any)["annotations"].(map[string]any)
	if names["io.containerd.image.name"] != "localhost/unnest/sample:1" || names["org.opencontainers.image.ref.name"] != "1" {
		t.Errorf("the image has the names %v", names)
	}
	manifest := parse(t, follow(t, files, index))
	layer := follow(t, files, manifest["layers"].([]any)[0])
	want := map[string]string{"bin/": "/", "bin/a": "program", "bin/sh": "-> a", "etc/": "/", "etc/x/": "/", "etc/x/b": "data"}
	if diff := cmp.Diff(want, read(t, []byte(layer))); diff != "" {
		t.Errorf("the layer differs (-want +got):\n%s", diff)
	}
	config := parse(t, follow(t, files, manifest["config"]))
	sum := sha256.Sum256([]byte(layer))
	if got := config["rootfs"].(map[string]any)["diff_ids"].([]any)[0]; got != "sha256:"+hex.EncodeToString(sum[:]) {
		t.Errorf("the configuration names the layer %v", got)
	}
	if got := config["config"].(map[string]any)["Entrypoint"].([]any)[0]; got != "/bin/a" || config["architecture"] != "amd64" {
		t.Errorf("the entry point is %v, the architecture %v", got, config["architecture"])
	}
}

func TestImageWithoutTag(t *testing.T) {
	i := sample()
	i.Name = "localhost:5000/unnest/sample"
	if err := i.Write(io.Discard); err == nil || err.Error() != "write image localhost:5000/unnest/sample: it has no tag: want NAME:TAG" {
		t.Errorf("got %v", err)
	}
}
