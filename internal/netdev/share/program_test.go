package share

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// use replaces the paths of virtiofsd by those of programs that print a help.
func use(t *testing.T, help ...string) {
	t.Helper()
	was := programPaths
	t.Cleanup(func() { programPaths = was })
	programPaths = []string{filepath.Join(t.TempDir(), "none")}
	for _, text := range help {
		path := filepath.Join(t.TempDir(), "virtiofsd")
		if err := os.WriteFile(path, []byte("#!/bin/sh\n"+text), 0o700); err != nil {
			t.Fatal(err)
		}
		programPaths = append(programPaths, path)
	}
}

// The options follow from what the program says, not from where it is.
func TestProgram(t *testing.T) {
	const own, successor, older = "echo '    -o posix_lock|no_posix_lock'", "echo '      --allow-mmap'", "echo '  --shared-dir <SHARED_DIR>'"
	for _, test := range []struct {
		help      []string
		hostLocks bool
		want      string
	}{
		{[]string{own}, true, "--fd=3 --rlimit-nofile=9 -f -o source=/d -o cache=auto,timeout=0,posix_lock,flock,sandbox=namespace,modcaps=-mknod,log_level=err"},
		{[]string{successor}, false, "--fd=3 --rlimit-nofile=9 --shared-dir=/d --cache=never --sandbox=namespace --modcaps=-mknod --log-level=error --allow-mmap"},
		{[]string{older}, false, "--fd=3 --rlimit-nofile=9 --shared-dir=/d --cache=never --sandbox=namespace --modcaps=-mknod --log-level=error"},
		{[]string{own, successor}, true, "-o source=/d"},
	} {
		use(t, test.help...)
		p, err := FindProgram()
		if err != nil || p.HostLocks != test.hostLocks || p.Path != programPaths[1] {
			t.Errorf("%q: got %+v, %v", test.help, p, err)
		}
		if got, err := p.arguments("/d", 9); err != nil || !strings.Contains(strings.Join(got, " "), test.want) {
			t.Errorf("%q: got %q, %v", test.help, got, err)
		}
		if _, err := p.arguments("/a,sandbox=none", 9); err == nil {
			t.Errorf("%q: a comma became an option", test.help)
		}
	}
}

func TestProgramFails(t *testing.T) {
	use(t)
	if _, err := FindProgram(); !errors.Is(err, ErrNoServer) || !strings.Contains(err.Error(), "install the package virtiofsd") {
		t.Errorf("none: got %v", err)
	}
	use(t, "exit 3")
	if _, err := FindProgram(); err == nil || errors.Is(err, ErrNoServer) || !strings.Contains(err.Error(), programPaths[1]) {
		t.Errorf("one that fails: got %v", err)
	}
	was := helpLimit
	defer func() { helpLimit = was }()
	helpLimit = 100 * time.Millisecond
	use(t, "exec sleep 60")
	if _, err := FindProgram(); err == nil || !strings.HasSuffix(err.Error(), "virtiofsd for its options: no answer for 100ms") {
		t.Errorf("one that hangs: got %v", err)
	}
}

// This machine's virtiofsd accepts the options: it is one of the two that are known.
func TestInstalledProgram(t *testing.T) {
	privileged(t)
	p, err := FindProgram()
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Contains(programPaths, p.Path) || !p.HostLocks && !strings.Contains(p.help, "--shared-dir") {
		t.Errorf("%s has other options:\n%s", p.Path, p.help)
	}
}
