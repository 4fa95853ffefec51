// Command images writes the container images of this project as OCI archives. Their files are
// static binaries, so they need no base image and no registry.
package main

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"

	"unnest/internal/testbed/oci"
)

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: images BINARIES DIRECTORY")
		os.Exit(2)
	}
	if err := write(os.Args[1], os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// write writes the image of the CNI plugins, with their installer, into the directory dir.
func write(binaries, dir string) (err error) {
	content, err := os.ReadFile(filepath.Join(binaries, "unnest-cni"))
	if err != nil {
		return fmt.Errorf("make image: %w: run `make build`", err)
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	image := oci.Image{
		Name: "localhost/unnest/cni:1", Arch: runtime.GOARCH,
		Files: map[string][]byte{"/unnest-cni": content}, Entrypoint: []string{"/unnest-cni", "install"},
	}
	path := filepath.Join(dir, "unnest-cni.tar")
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	if err = image.Write(f); err == nil {
		err = f.Close()
	} else {
		_ = f.Close()
	}
	if err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	return nil
}
