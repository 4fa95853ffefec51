package cni_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
)

// TestMain acts as a plugin if the test binary has a plugin's name. Otherwise it runs the
// tests in a child process with its own network and mount namespaces, so that bridges,
// pods and leases end with it.
func TestMain(m *testing.M) {
	name := filepath.Base(os.Args[0])
	if fault, ok := strings.CutPrefix(name, "model-"); ok {
		os.Exit(modelMain(fault))
	}
	switch name {
	case "leases":
		os.Exit(leasesMain())
	case "passer":
		os.Exit(chainedMain(true))
	case "dropper":
		os.Exit(chainedMain(false))
	}
	const inside = "UNNEST_CONFORMANCE_INSIDE"
	if os.Getenv("UNNEST_PRIVILEGED") != "1" || os.Getenv(inside) == "1" {
		os.Exit(run(m))
	}
	c := exec.Command(os.Args[0], os.Args[1:]...)
	c.Env = append(os.Environ(), inside+"=1")
	c.Stdin, c.Stdout, c.Stderr = os.Stdin, os.Stdout, os.Stderr
	c.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET | syscall.CLONE_NEWNS, Pdeathsig: syscall.SIGKILL}
	err := c.Run()
	if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(c.ProcessState.ExitCode())
}

func run(m *testing.M) int {
	if os.Getenv("UNNEST_PRIVILEGED") != "1" {
		return m.Run()
	}
	if err := privateMounts(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	var err error
	if binaries, err = os.MkdirTemp("", "cni-test-"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(binaries)
	return m.Run()
}

// binaries is a directory for the programs that the tests build.
var binaries string

// pluginBinary builds this test program without the race detector, with which each of some
// thousand calls of a plugin takes several times as long.
var pluginBinary = sync.OnceValues(func() (string, error) {
	path := filepath.Join(binaries, "plugin")
	return path, build("test", "-c", "-trimpath", "-vet=off", "-o", path, ".")
})

// build runs the go command as `make build` does, which shares its cache.
func build(args ...string) error {
	c := exec.Command("go", args...)
	c.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := c.CombinedOutput(); err != nil {
		return fmt.Errorf("%v: %w: %s", c.Args, err, out)
	}
	return nil
}

// privateMounts hides changes in these directories from the machine.
func privateMounts() error {
	if err := syscall.Mount("", "/", "", syscall.MS_REC|syscall.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("make mounts private: %w", err)
	}
	for _, dir := range []string{"/run/netns", "/var/lib/cni"} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
		if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, ""); err != nil {
			return fmt.Errorf("mount tmpfs on %s: %w", dir, err)
		}
	}
	return nil
}
