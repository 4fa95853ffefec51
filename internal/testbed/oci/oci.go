// Package oci makes container images from files in memory, and writes them as OCI archives
// (image layout specification 1.1), which container engines load without a registry.
package oci

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"path"
	"slices"
	"strings"
)

// Image is a container image with one layer. Equal images have equal archives.
type Image struct {
	Name       string            // with its tag, such as localhost/unnest/pause:1
	Arch       string            // as Go names it
	Files      map[string][]byte // by absolute path; all are executable
	Links      map[string]string // symbolic links: absolute path -> target
	Entrypoint []string
	Args       []string // of the entrypoint, unless the container has its own
}

// blob is a part of an archive, which its digest names.
type blob struct {
	kind    string // media type
	content []byte
}

func (b blob) digest() string {
	sum := sha256.Sum256(b.content)
	return hex.EncodeToString(sum[:])
}

func (b blob) descriptor() map[string]any {
	return map[string]any{"mediaType": b.kind, "digest": "sha256:" + b.digest(), "size": len(b.content)}
}

const mediaType = "application/vnd.oci.image."

// Write writes the archive of the image.
func (i Image) Write(to io.Writer) error {
	files, err := i.layout()
	if err == nil {
		err = writeTar(to, files, nil)
	}
	if err != nil {
		return fmt.Errorf("write image %s: %w", i.Name, err)
	}
	return nil
}

// layout returns the files of the image's archive.
func (i Image) layout() (map[string][]byte, error) {
	_, tag, ok := strings.Cut(path.Base(i.Name), ":")
	if !ok {
		return nil, fmt.Errorf("it has no tag: want NAME:TAG")
	}
	var content bytes.Buffer
	if err := writeTar(&content, i.Files, i.Links); err != nil {
		return nil, err
	}
	layer := blob{mediaType + "layer.v1.tar", content.Bytes()}
	config := jsonBlob(mediaType+"config.v1+json", map[string]any{
		"os": "linux", "architecture": i.Arch,
		"config": i.config(),
		"rootfs": map[string]any{"type": "layers", "diff_ids": []string{"sha256:" + layer.digest()}},
	})
	manifest := jsonBlob(mediaType+"manifest.v1+json", map[string]any{
		"schemaVersion": 2, "mediaType": mediaType + "manifest.v1+json",
		"config": config.descriptor(), "layers": []any{layer.descriptor()},
	})
	named := manifest.descriptor()
	named["annotations"] = map[string]string{"io.containerd.image.name": i.Name, "org.opencontainers.image.ref.name": tag}
	index := jsonBlob("", map[string]any{"schemaVersion": 2, "manifests": []any{named}})
	files := map[string][]byte{"/oci-layout": []byte(`{"imageLayoutVersion":"1.0.0"}`), "/index.json": index.content}
	for _, b := range []blob{layer, config, manifest} {
		files["/blobs/sha256/"+b.digest()] = b.content
	}
	return files, nil
}

// config is what a container of the image runs by default.
func (i Image) config() map[string]any {
	c := map[string]any{"Entrypoint": i.Entrypoint, "Env": []string{"PATH=/usr/bin:/bin"}, "WorkingDir": "/"}
	if len(i.Args) > 0 {
		c["Cmd"] = i.Args
	}
	return c
}

func jsonBlob(kind string, v any) blob {
	content, err := json.Marshal(v)
	if err != nil {
		panic(fmt.Sprintf("marshal %s: %v", kind, err)) // plain data always marshals
	}
	return blob{kind, content}
}

// writeTar writes files and links, with their directories, in a fixed order.
func writeTar(to io.Writer, files map[string][]byte, links map[string]string) error {
	w := tar.NewWriter(to)
	made := map[string]bool{"/": true}
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if err := writeParents(w, path.Dir(name), made); err != nil {
			return err
		}
		h := &tar.Header{Name: name[1:], Typeflag: tar.TypeReg, Mode: 0o755, Size: int64(len(files[name]))}
		if err := w.WriteHeader(h); err != nil {
			return err
		}
		if _, err := w.Write(files[name]); err != nil {
			return err
		}
	}
	for _, name := range slices.Sorted(maps.Keys(links)) {
		if err := writeParents(w, path.Dir(name), made); err != nil {
			return err
		}
		if err := w.WriteHeader(&tar.Header{Name: name[1:], Typeflag: tar.TypeSymlink, Linkname: links[name], Mode: 0o777}); err != nil {
			return err
		}
	}
	return w.Close()
}

// writeParents writes a directory and those above it, each once.
func writeParents(w *tar.Writer, dir string, made map[string]bool) error {
	if made[dir] {
		return nil
	}
	made[dir] = true
	if err := writeParents(w, path.Dir(dir), made); err != nil {
		return err
	}
	return w.WriteHeader(&tar.Header{Name: dir[1:] + "/", Typeflag: tar.TypeDir, Mode: 0o755})
}
