package configfile

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

const small = "tenants: [{name: default, bridge: br0}]\n"

func TestRead(t *testing.T) {
	path := filepath.Join(t.TempDir(), "hostd.yaml")
	if _, err := Read(path); err == nil || !strings.Contains(err.Error(), "write one, or name it with --config") {
		t.Errorf("no file: got %v", err)
	}
	write(t, path, small)
	if p, err := Read(path); err != nil || p.Tenants[0].Name != "default" {
		t.Errorf("got %+v, %v", p, err)
	}
	write(t, path, "a: 1")
	if _, err := Read(path); err == nil || !strings.HasPrefix(err.Error(), path+":1: a: unknown key") {
		t.Errorf("a mistake: got %v", err)
	}
}

func write(t *testing.T, path, content string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}

// However a file is changed, it is reported, once unless it takes long; a file that is only
// touched is not.
func TestWatch(t *testing.T) {
	rename := func(t *testing.T, path, content string) {
		write(t, path+".new", content)
		if err := os.Rename(path+".new", path); err != nil {
			t.Fatal(err)
		}
	}
	for name, change := range map[string]func(t *testing.T, path, content string){
		"written in place": write,
		"replaced":         rename,
		"removed and written in steps": func(t *testing.T, path, content string) {
			if err := os.Remove(path); err != nil {
				t.Fatal(err)
			}
			for i := range len(content) {
				write(t, path, content[:i+1])
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			path := filepath.Join(t.TempDir(), "hostd.yaml")
			write(t, path, small)
			changes, _ := watched(t, path)
			rename(t, path, small) // the same content
			none(t, changes, 2*quiet)
			for _, content := range []string{small + "pool: 1\n", small + "pool: 2\n"} {
				change(t, path, content)
				one(t, changes)
				if name != "replaced" {
					more(t, changes)
				}
				none(t, changes, 2*quiet)
			}
		})
	}
}

// The file may be a link, of which either end changes, as with mounted configuration in
// Kubernetes.
func TestWatchLink(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := filepath.Join(dir, "hostd.yaml")
	for _, version := range []string{"v1", "v2"} {
		if err := os.Mkdir(filepath.Join(dir, version), 0o700); err != nil {
			t.Fatal(err)
		}
		write(t, filepath.Join(dir, version, "hostd.yaml"), small+"# "+version)
	}
	link := func(target, name string) {
		if err := errors.Join(os.Symlink(target, name+".new"), os.Rename(name+".new", name)); err != nil {
			t.Fatal(err)
		}
	}
	link("v1", filepath.Join(dir, "data"))
	link("data/hostd.yaml", path)
	changes, _ := watched(t, path)
	write(t, filepath.Join(dir, "v1", "hostd.yaml"), small+"# v1, changed")
	one(t, changes)
	link("v2", filepath.Join(dir, "data"))
	one(t, changes)
}

// A signal reports a change even if there is none. Without the directory only signals do.
func TestWatchSignals(t *testing.T) {
	t.Parallel()
	for _, path := range []string{filepath.Join(t.TempDir(), "hostd.yaml"), "/nowhere/hostd.yaml"} {
		changes, signals := watched(t, path)
		for range 2 {
			signals <- syscall.SIGHUP
			one(t, changes)
		}
		none(t, changes, 2*quiet)
	}
}

// watched watches a file until the test ends.
func watched(t *testing.T, path string) (changes chan struct{}, signals chan os.Signal) {
	changes, signals = make(chan struct{}, 100), make(chan os.Signal)
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	t.Cleanup(wg.Wait)
	t.Cleanup(cancel)
	wg.Go(func() {
		Watch(ctx, path, signals, slog.New(slog.DiscardHandler), func() { changes <- struct{}{} })
	})
	signals <- syscall.SIGHUP // it watches once it takes a signal
	one(t, changes)
	return changes, signals
}

func one(t *testing.T, changes chan struct{}) {
	t.Helper()
	select {
	case <-changes:
	case <-time.After(time.Minute):
		t.Fatal("the change is not reported")
	}
}

// more takes further reports of a change in several steps, between which a busy machine may
// pause.
func more(t *testing.T, changes chan struct{}) {
	t.Helper()
	for range 10 {
		select {
		case <-changes:
		case <-time.After(2 * quiet):
			return
		}
	}
	t.Error("one change is reported again and again")
}

func none(t *testing.T, changes chan struct{}, d time.Duration) {
	t.Helper()
	select {
	case <-changes:
		t.Error("a change is reported that is none")
	case <-time.After(d):
	}
}

// An edit keeps mode and link, and leaves the file as it was if it fails.
func TestEdit(t *testing.T) {
	dir := t.TempDir()
	path, link := filepath.Join(dir, "hostd.yaml"), filepath.Join(dir, "link")
	write(t, path, small)
	if err := errors.Join(os.Chmod(path, 0o640), os.Symlink(path, link)); err != nil {
		t.Fatal(err)
	}
	failed := errors.New("no")
	if err := Edit(link, func([]byte) ([]byte, error) { return nil, failed }); !errors.Is(err, failed) {
		t.Errorf("got %v", err)
	}
	for range 3 {
		if err := Edit(link, func(b []byte) ([]byte, error) { return append(b, '#', '\n'), nil }); err != nil {
			t.Fatal(err)
		}
	}
	content, err := os.ReadFile(path)
	if err != nil || string(content) != small+"#\n#\n#\n" {
		t.Errorf("got %q, %v", content, err)
	}
	info, err := os.Lstat(path)
	if err != nil || info.Mode() != 0o640 {
		t.Errorf("mode is %v, %v", info.Mode(), err)
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 2 {
		t.Errorf("directory has %v, %v", entries, err)
	}
}
