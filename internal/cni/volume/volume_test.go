package volume

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"unnest.io/unnest/internal/hostapi/hostdpb"
)

func TestWrongCalls(t *testing.T) {
	for _, args := range [][]string{
		{}, {"attach"}, {"attach", "volume", "p", "n"}, {"attach", "disk", "p", "n", "/x"}, {"mount", "volume", "p", "n", "/x"},
		{"attach", "volume", "p", "n", "/x", "4096"}, {"detach", "memory", "p", "n", "/x", "4096"},
		{"attach", "memory", "p", "n", "/x", "much"}, {"-server", "nowhere", "attach", "volume", "p", "n", "/x"}, {"-x"},
	} {
		var said bytes.Buffer
		if code := Main(t.Context(), args, strings.NewReader("key"), &said); code != 2 || said.Len() == 0 {
			t.Errorf("%q: exit code %d, printed %q", args, code, said.String())
		}
	}
}

func TestNoCredentials(t *testing.T) {
	var said bytes.Buffer
	dir := t.TempDir()
	code := Main(t.Context(), []string{"-credentials", dir, "detach", "volume", "p", "n", dir}, nil, &said)
	if code != 1 || !strings.Contains(said.String(), dir) {
		t.Errorf("exit code %d, printed %q", code, said.String())
	}
}

func TestMountUnknownTransport(t *testing.T) {
	err := Mount(t.Context(), &hostdpb.Volume{Name: "data"}, t.TempDir())
	if err == nil || !strings.Contains(err.Error(), "too old") {
		t.Errorf("got %v", err)
	}
}

// A device that does not appear is an error; another error ends the wait.
func TestAwait(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	tries := 0
	err := await(ctx, func() error {
		if tries++; tries == 3 {
			cancel()
		}
		return errNotYet
	})
	if !errors.Is(err, errNotYet) || tries < 3 {
		t.Errorf("got %v after %d tries", err, tries)
	}
	if err := await(ctx, func() error { return nil }); err != nil {
		t.Errorf("a present device: got %v", err)
	}
	if err := await(t.Context(), func() error { return unix.EPERM }); !errors.Is(err, unix.EPERM) {
		t.Errorf("a permanent error: got %v", err)
	}
}

func TestUnmountNothing(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root")
	}
	dir := t.TempDir()
	for _, path := range []string{dir, filepath.Join(dir, "none")} {
		if err := Unmount(path); err != nil {
			t.Errorf("%s: %v", path, err)
		}
	}
	if there, err := Mounted("/proc"); !there || err != nil {
		t.Errorf("/proc is mounted: %t, %v", there, err)
	}
	if there, err := Mounted(dir); there || err != nil {
		t.Errorf("%s is mounted: %t, %v", dir, there, err)
	}
}
