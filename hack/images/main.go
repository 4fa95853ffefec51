// Command images writes the container images of this project as OCI archives. Their files are
// static binaries, so they need no base image and no registry.
package main

import (
	"fmt"
	"os"
	"path/filepath"

	"unnest.io/unnest/internal/measure/workload"
	"unnest.io/unnest/internal/testbed/oci"
)

func main() {
	if len(os.Args) != 4 {
		fmt.Fprintln(os.Stderr, "usage: images BINARIES DIRECTORY ARCHITECTURE")
		os.Exit(2)
	}
	if err := write(os.Args[1], os.Args[2], os.Args[3]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// programs are those that have an image, with their path in it and what it runs.
var programs = []struct {
	binary, image, path, archive string
	arguments                    []string
}{
	{"unnest-cni", "localhost/unnest/cni:2", "/unnest-cni", "unnest-cni.tar", []string{"install"}},
	{"unnest-volume", "localhost/unnest/volume:1", "/unnest-volume", "unnest-volume.tar", []string{"driver"}},
	{"unnest-kube", "localhost/unnest/kube:1", "/unnest-kube", "unnest-kube.tar", nil},
	{"unnest-load", workload.PeerImage, workload.Generator, "unnest-load.tar", []string{"hold"}},
}

// write writes the images of binaries of an architecture, as Go names it, into the directory dir.
func write(binaries, dir, arch string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	for _, p := range programs {
		content, err := os.ReadFile(filepath.Join(binaries, p.binary))
		if err != nil {
			return fmt.Errorf("make image: %w: run `make build`", err)
		}
		image := oci.Image{
			Name: p.image, Arch: arch,
			Files: map[string][]byte{p.path: content}, Entrypoint: append([]string{p.path}, p.arguments...),
		}
		if err := writeFile(image, filepath.Join(dir, p.archive)); err != nil {
			return err
		}
	}
	return nil
}

func writeFile(image oci.Image, path string) error {
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
