package image

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

// A directory exists completely or not at all, whatever an earlier process left.
func TestWhole(t *testing.T) {
	broken := errors.New("broken")
	fill := func(tmp string) error { return os.WriteFile(filepath.Join(tmp, "file"), []byte("new"), 0o600) }
	tests := []struct {
		name string
		make func(tmp string) error
		want error
	}{
		{"success", fill, nil},
		{"failure", func(tmp string) error { return errors.Join(fill(tmp), broken) }, broken},
	}
	for _, tt := range tests {
		for _, unfinished := range []bool{false, true} {
			t.Run(tt.name, func(t *testing.T) {
				path := filepath.Join(t.TempDir(), "image")
				if unfinished {
					if err := os.MkdirAll(filepath.Join(path+".part", "old/deep"), 0o700); err != nil {
						t.Fatal(err)
					}
				}
				err := (&Builder{}).whole(path, func(tmp string) error {
					if exists(path) || exists(filepath.Join(tmp, "old")) {
						t.Error("make sees what was there before, or others see what it makes")
					}
					return tt.make(tmp)
				})
				if !errors.Is(err, tt.want) {
					t.Errorf("got %v, want %v", err, tt.want)
				}
				if got := exists(filepath.Join(path, "file")); got != (tt.want == nil) {
					t.Errorf("directory is there: %v", got)
				}
				if exists(path + ".part") {
					t.Error("an unfinished directory is left")
				}
			})
		}
	}
}

// Of two processes that want the cache, one waits, and reports that once.
func TestLockWaits(t *testing.T) {
	cache := filepath.Join(t.TempDir(), "deep", "cache")
	unlock, err := (&Builder{Cache: cache}).lock(t.Context(), imageLock)
	if err != nil {
		t.Fatal(err)
	}
	said := make(chan string, 10)
	waiting := &Builder{Cache: cache, Progress: func(step string) { said <- step }}
	got := make(chan error, 1)
	go func() {
		unlock, err := waiting.lock(t.Context(), imageLock)
		if err == nil {
			unlock()
		}
		got <- err
	}()
	if step := <-said; !strings.Contains(step, cache) {
		t.Errorf("got step %q, want one that names the cache", step)
	}
	select {
	case err := <-got:
		t.Fatalf("it did not wait: %v", err)
	case <-time.After(5 * lockInterval):
	}
	unlock()
	if err := <-got; err != nil {
		t.Error(err)
	}
	if len(said) > 0 {
		t.Errorf("it reports again: %q", <-said)
	}
}

func TestLockObeysContext(t *testing.T) {
	cache := t.TempDir()
	unlock, err := (&Builder{Cache: cache}).lock(t.Context(), imageLock)
	if err != nil {
		t.Fatal(err)
	}
	defer unlock()
	why := errors.New("told to stop")
	ctx, cancel := context.WithCancelCause(t.Context())
	waiting := &Builder{Cache: cache, Progress: func(string) { cancel(why) }}
	if _, err := waiting.lock(ctx, imageLock); !errors.Is(err, why) {
		t.Errorf("got %v, want %v", err, why)
	}
}

func TestLockWithoutCache(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := (&Builder{Cache: filepath.Join(file, "cache")}).lock(t.Context(), imageLock)
	if err == nil || !strings.Contains(err.Error(), "create image cache: ") || !strings.Contains(err.Error(), file) {
		t.Errorf("got %v; want an error that names the cache", err)
	}
}

// A missing binary is reported before anything is made.
func TestBuildWithoutProgram(t *testing.T) {
	cache, missing := t.TempDir(), filepath.Join(t.TempDir(), "unnest-cni")
	b := Builder{Cache: cache, Files: map[string]string{"/usr/lib/cni/brfusion": missing}}
	_, err := b.Build(t.Context(), DefaultRecipe())
	if err == nil || !strings.Contains(err.Error(), missing) || !strings.Contains(err.Error(), "make build") {
		t.Errorf("got %v; want an error that names %s and `make build`", err, missing)
	}
	if entries, err := os.ReadDir(cache); err != nil || len(entries) > 0 {
		t.Errorf("%v was made in the cache (%v)", entries, err)
	}
}

// An image in the cache is used as it is.
func TestBuildTakesCached(t *testing.T) {
	cache, r := t.TempDir(), DefaultRecipe()
	digest := mustDigest(t, r, map[string][]byte{})
	dir := filepath.Join(cache, "image-"+digest)
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	image, err := (&Builder{Cache: cache}).Build(t.Context(), r)
	want := Image{"", digest, dir + "/vmlinux", dir + "/vmlinuz", dir + "/initrd", dir + "/root.ext4", ""}
	if err != nil || image != want {
		t.Errorf("got %+v, %v; want %+v", image, err, want)
	}
}

// Adding files changes neither the Debian root that shares files with the image, nor
// the targets of links in it.
func TestAddFiles(t *testing.T) {
	debian, root := t.TempDir(), t.TempDir()
	shared, outside := filepath.Join(debian, "inittab"), filepath.Join(t.TempDir(), "outside")
	for _, path := range []string{shared, outside} {
		if err := os.WriteFile(path, []byte("old"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(os.Mkdir(filepath.Join(root, "etc"), 0o755),
		os.Link(shared, filepath.Join(root, "etc/inittab")), os.Symlink(outside, filepath.Join(root, "etc/link"))); err != nil {
		t.Fatal(err)
	}
	files := map[string][]byte{"/etc/inittab": []byte("new"), "/etc/link": []byte("new"), "/a/new/place": []byte("new")}
	if err := addFiles(root, files); err != nil {
		t.Fatal(err)
	}
	for path := range files {
		content, err := os.ReadFile(filepath.Join(root, path))
		info, statErr := os.Lstat(filepath.Join(root, path))
		if err != nil || statErr != nil || string(content) != "new" || info.Mode() != 0o755 {
			t.Errorf("%s: got %q, %v, mode %v", path, content, errors.Join(err, statErr), info)
		}
	}
	for _, path := range []string{shared, outside} {
		if content, err := os.ReadFile(path); err != nil || string(content) != "old" {
			t.Errorf("%s was changed to %q (%v)", path, content, err)
		}
	}
}

func TestKernelRelease(t *testing.T) {
	tests := []struct {
		files []string
		want  string
	}{
		{[]string{"vmlinuz-6.1.0-40-amd64"}, "6.1.0-40-amd64"},
		{nil, ""},
		{[]string{"vmlinuz-6.1.0-40-amd64", "vmlinuz-6.1.0-41-amd64"}, ""},
	}
	for _, tt := range tests {
		root := t.TempDir()
		for _, f := range tt.files {
			if err := addFiles(root, map[string][]byte{"/boot/" + f: nil}); err != nil {
				t.Fatal(err)
			}
		}
		got, err := kernelRelease(root)
		if got != tt.want || (err == nil) != (tt.want != "") {
			t.Errorf("%v: got %q, %v; want %q", tt.files, got, err, tt.want)
		}
	}
}

func TestCacheDir(t *testing.T) {
	t.Setenv("HOME", "/home/me")
	t.Setenv("XDG_CACHE_HOME", "")
	t.Setenv("UNNEST_CACHE", "")
	if got := CacheDir(); got != "/home/me/.cache/unnest" {
		t.Errorf("got %s", got)
	}
	t.Setenv("HOME", "")
	if got := CacheDir(); got != "/var/cache/unnest" {
		t.Errorf("without a home: got %s", got)
	}
	t.Setenv("UNNEST_CACHE", "/big/disk")
	if got := CacheDir(); got != "/big/disk" {
		t.Errorf("asked for: got %s", got)
	}
	dir := t.TempDir()
	t.Chdir(dir)
	t.Setenv("UNNEST_CACHE", "cache")
	if got := CacheDir(); got != filepath.Join(dir, "cache") {
		t.Errorf("relative: got %s", got)
	}
}

// The end of a build kills all of its processes, also those that left its session.
func TestRunKillsEverything(t *testing.T) {
	privileged(t)
	why := errors.New("told to stop")
	ctx, cancel := context.WithCancelCause(t.Context())
	const mark = "181.2517" // seconds that nobody else sleeps
	cache := t.TempDir()
	begun := filepath.Join(cache, "begun")
	done := make(chan error, 1)
	go func() {
		done <- (&Builder{Cache: cache}).run(ctx, nil, "sh", "-c", `setsid sleep `+mark+` & touch "$0"; wait`, begun)
	}()
	for end := time.Now().Add(patience); !exists(begun) || sleepers(t, mark) == 0; time.Sleep(lockInterval) {
		if time.Now().After(end) {
			t.Fatal("it does not begin")
		}
	}
	cancel(why)
	if err := <-done; !errors.Is(err, why) {
		t.Errorf("got %v, want %v", err, why)
	}
	for end := time.Now().Add(patience); sleepers(t, mark) > 0; time.Sleep(lockInterval) {
		if time.Now().After(end) {
			t.Fatal("a process is left")
		}
	}
}

// A build that is killed takes its processes with it, so that the next one does not meet them.
func TestRunEndsWithUs(t *testing.T) {
	privileged(t)
	const mark = "181.2519" // seconds that nobody else sleeps
	if cache := os.Getenv("TEST_CACHE"); cache != "" {
		t.Fatal((&Builder{Cache: cache}).run(t.Context(), nil, "sleep", mark))
	}
	us := exec.Command(os.Args[0], "-test.run=^TestRunEndsWithUs$")
	us.Env = append(os.Environ(), "TEST_CACHE="+t.TempDir())
	if err := us.Start(); err != nil {
		t.Fatal(err)
	}
	await := func(what string, done func(sleeping int) bool) {
		for end := time.Now().Add(patience); !done(sleepers(t, mark)); time.Sleep(lockInterval) {
			if time.Now().After(end) {
				t.Fatal(what)
			}
		}
	}
	await("it does not begin", func(n int) bool { return n > 1 }) // unshare and sleep
	if err := us.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = us.Wait()
	await("a process is left", func(n int) bool { return n == 0 })
}

// sleepers counts the processes with mark in their command lines.
func sleepers(t *testing.T, mark string) int {
	t.Helper()
	paths, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, path := range paths {
		if line, err := os.ReadFile(path); err == nil && strings.Contains(string(line), mark) {
			n++
		}
	}
	return n
}

// The log stays if the command fails, and only then.
func TestRunNamesTheLog(t *testing.T) {
	privileged(t)
	b := Builder{Cache: t.TempDir()}
	log := filepath.Join(b.Cache, "sh.log")
	err := b.run(t.Context(), []string{"WORD=four"}, "sh", "-c", "for w in one two three $WORD; do echo $w >&2; done; exit 7")
	if err == nil || err.Error() != "run sh: exit status 7: two | three | four; see "+log {
		t.Errorf("got %v; want the program, its code, its last lines and its log", err)
	}
	if text, err := os.ReadFile(log); err != nil || string(text) != "one\ntwo\nthree\nfour\n" {
		t.Errorf("log: %q, %v", text, err)
	}
	if err := b.run(t.Context(), nil, "sh", "-c", "echo five"); err != nil || exists(log) {
		t.Errorf("got %v, log exists: %v", err, exists(log))
	}
}

// The free space stays when the image grows.
func TestRootSize(t *testing.T) {
	const gib = int64(1) << 30
	for content, want := range map[int64]int64{0: 4, gib: 4, gib + 1: 5, 2 * gib: 5, 10*gib - 1: 13} {
		if got := rootSize(content); got != want*gib {
			t.Errorf("%d bytes of content: got %d, want %d GiB", content, got, want)
		}
	}
}

// Hard links and sparse files count with their real disk space.
func TestDiskUsage(t *testing.T) {
	root := t.TempDir()
	first := filepath.Join(root, "first")
	if err := os.WriteFile(first, make([]byte, 1<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Link(first, filepath.Join(root, "second")); err != nil {
		t.Fatal(err)
	}
	hole, err := os.Create(filepath.Join(root, "hole"))
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(hole.Truncate(1<<30), hole.Close()); err != nil {
		t.Fatal(err)
	}
	got, err := diskUsage(root)
	if err != nil || got < 1<<20 || got > 1<<20+64<<10 {
		t.Errorf("got %d, %v; want 1 MiB and a little", got, err)
	}
	if _, err := diskUsage(filepath.Join(root, "none")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("got %v", err)
	}
}

// There is no room in a read-only file system, however much of it is free.
func TestFreeDiskReadOnly(t *testing.T) {
	if os.Getenv("UNNEST_PRIVILEGED") != "1" {
		t.Skip("needs to mount: set UNNEST_PRIVILEGED=1")
	}
	dir, ended := t.TempDir(), make(chan error)
	go func() {
		runtime.LockOSThread() // which ends with its mount namespace
		err := unix.Unshare(unix.CLONE_NEWNS)
		if err == nil {
			err = unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, "")
		}
		if err == nil {
			err = unix.Mount("tmpfs", dir, "tmpfs", unix.MS_RDONLY, "")
		}
		if err == nil {
			_, err = FreeDisk(filepath.Join(dir, "not", "there"))
		}
		ended <- err
	}()
	if err := <-ended; !errors.Is(err, unix.EROFS) {
		t.Errorf("got %v, want EROFS", err)
	}
}

func TestFreeDiskGoesUpToWhatExists(t *testing.T) {
	dir := t.TempDir()
	free, err := FreeDisk(filepath.Join(dir, "not", "there", "yet"))
	if err != nil || free == 0 {
		t.Errorf("got %d bytes, %v", free, err)
	}
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := FreeDisk(filepath.Join(file, "below")); err == nil {
		t.Error("a directory below a file: got no error")
	}
}
