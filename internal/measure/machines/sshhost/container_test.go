package sshhost

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"unnest.io/unnest/internal/measure/benchtest"
	"unnest.io/unnest/internal/measure/stack"
	"unnest.io/unnest/internal/testbed/image"
	"unnest.io/unnest/internal/testbed/place"
)

// containerEngine is a container engine that keeps images and containers as files below
// its state directory. Files there make it fail.
const containerEngine = `#!/bin/sh
state=$(dirname "$(readlink -f "$0")")/state
echo "$*" >>"$state/calls"
[ ! -s "$state/fails-$1" ] || { cat "$state/fails-$1" >&2; exit 1; }
case "$1" in
--version) echo "fake version 1.2.3" ;;
ps) ls "$state/containers" ;;
image) [ -e "$state/image" ] && [ "$(cat "$state/image")" = "$3" ] ;;
load) tar -xO manifest.json | sed 's/.*"RepoTags":\["\([^"]*\)".*/\1/' >"$state/image" ;;
rm) shift 2; for name; do rm "$state/containers/$name"; done ;;
run)
	[ "$2" != --rm ] || exec /bin/sh -c '/bin/rm -rf "$1"/*' sh "${6%%:*}"
	[ "$(cat "$state/image")" = "$(for last; do :; done; echo "$last")" ]
	echo "$*" >"$state/containers/$4" ;;
*) exit 125 ;;
esac
`

// newTestHost makes this machine a host with some engines and few other tools, and
// returns a run on it, and the state directory of the engines.
func newTestHost(t *testing.T, engines ...string) (r *Host, state string) {
	t.Helper()
	bin := t.TempDir()
	for _, tool := range []string{"sh", "cat", "chmod", "dirname", "flock", "grep", "gzip", "ls", "mkdir", "mv", "readlink", "rm", "sed", "tail", "tar"} {
		path, err := exec.LookPath(tool)
		if err == nil {
			err = os.Symlink(path, filepath.Join(bin, tool))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	state = filepath.Join(bin, "state")
	if err := os.MkdirAll(filepath.Join(state, "containers"), 0o700); err != nil {
		t.Fatal(err)
	}
	for _, e := range engines {
		if err := os.WriteFile(filepath.Join(bin, e), []byte(containerEngine), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("PATH", bin)
	return newVisit(t, t.TempDir(), "a"), state
}

// newVisit returns a run on this machine as a host, which works below parent.
func newVisit(t *testing.T, parent, name string) *Host {
	t.Helper()
	return &Host{
		configuration: stack.Configuration{Name: "web", Stack: stack.Stack{stack.SSH, stack.Containerd}, Host: "ssh://h"},
		Place:         place.Local{}, Dir: filepath.Join(parent, "unnest-run-"+name), Step: func(string) {},
	}
}

// withClaim claims the directory of a run until the end of the test.
func withClaim(t *testing.T, r *Host) *Host {
	t.Helper()
	if err := r.claim(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = r.hold.Close() })
	return r
}

// smallArchive is the image of a root directory with one file.
func smallArchive(t *testing.T) *image.Archive {
	t.Helper()
	root := t.TempDir()
	benchtest.Write(t, filepath.Join(root, "etc/passwd"), "root:x:0:0::/root:/bin/sh\n")
	a, err := image.NewArchive(t.Context(), root, image.AMD64, nil)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func list(t *testing.T, dir string) (names []string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

// The engine that the stack is called after is preferred to others. An engine for
// another stack is not used.
func TestRemoteEngines(t *testing.T) {
	for _, tt := range []struct {
		layer stack.Layer
		there []string
		want  string
	}{
		{stack.Containerd, []string{"docker", "nerdctl", "podman"}, "nerdctl"},
		{stack.Containerd, []string{"docker", "podman"}, "docker"},
		{stack.Containerd, []string{"podman"}, "podman"},
		{stack.Docker, []string{"docker", "nerdctl", "podman"}, "docker"},
		{stack.Docker, []string{"nerdctl", "podman"}, "podman"},
	} {
		r, _ := newTestHost(t, tt.there...)
		note, err := withClaim(t, r).StartEngine(t.Context(), Engines(tt.layer), "x86_64", smallArchive(t))
		if err != nil || r.engine != tt.want || !benchtest.ContainsAll(note, "ssh://h", "fake version 1.2.3", "`"+tt.want+" rmi localhost/unnest/suite:") {
			t.Errorf("%s with %q: got %s, note %q, %v; want %s", tt.layer, tt.there, r.engine, note, err, tt.want)
		}
	}
}

// The error of an engine is one line with the host and the fix. The messages are those
// of nerdctl 1.7.7 and Docker 28.2.2.
func TestRemoteEngineFails(t *testing.T) {
	tests := []struct {
		name    string
		engines []string
		layer   stack.Layer
		arch    string
		fails   string // the engine's command that fails
		says    string
		want    []string
	}{
		{"none", nil, stack.Containerd, "x86_64", "", "", []string{"ssh://h has no container engine", "install nerdctl or docker or podman there, or use stack ssh"}},
		{"none that is asked for", []string{"nerdctl"}, stack.Docker, "x86_64", "", "", []string{"ssh://h has no container engine", "install docker or podman"}},
		{"another architecture", []string{"docker"}, stack.Docker, "aarch64", "", "", []string{"ssh://h is aarch64", "x86_64", "use stack ssh"}},
		{
			"not started", []string{"docker"}, stack.Docker, "x86_64", "ps",
			"Cannot connect to the Docker daemon at unix:///var/run/docker.sock. Is the docker daemon running?\n",
			[]string{"docker on ssh://h does not serve this user: Cannot connect", "daemon running?: start it there, or log in as"},
		},
		{
			"no rights", []string{"docker"}, stack.Docker, "x86_64", "ps",
			`permission denied while trying to connect to the Docker daemon socket at unix:///run/docker.sock: Get "http://%2Frun%2Fdocker.sock/v1.50/containers/json": dial unix /run/docker.sock: connect: permission denied` + "\n",
			[]string{"docker on ssh://h does not serve this user: permission denied", "log in as a user that it serves"},
		},
		{
			"no containerd for this user", []string{"nerdctl"}, stack.Containerd, "x86_64", "ps",
			`time="2026-11-21T22:18:43Z" level=warning msg="environment variable XDG_RUNTIME_DIR is not set, see https://rootlesscontaine.rs/getting-started/common/login/"
time="2026-11-21T22:18:43Z" level=fatal msg="rootless containerd not running? (hint: use ` + "`containerd-rootless-setuptool.sh install` to start rootless containerd): environment variable XDG_RUNTIME_DIR is not set" + `"
`,
			[]string{"nerdctl on ssh://h does not serve this user: time=", "level=fatal msg=\"rootless containerd not running?"},
		},
		{
			"disk full", []string{"docker"}, stack.Docker, "x86_64", "load",
			"write /usr/lib/x86_64-linux-gnu/libc.so.6: no space left on device\n",
			[]string{"load the image of containers", "no space left on device", "make room on ssh://h for the images of docker"},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r, state := newTestHost(t, tt.engines...)
			if tt.fails != "" {
				benchtest.Write(t, filepath.Join(state, "fails-"+tt.fails), tt.says)
			}
			_, err := withClaim(t, r).StartEngine(t.Context(), Engines(tt.layer), tt.arch, smallArchive(t))
			if err == nil || !benchtest.ContainsAll(err.Error(), tt.want...) || strings.Contains(err.Error(), "\n") || strings.Contains(err.Error(), "level=warning") {
				t.Errorf("got %v, want one line with %q", err, tt.want)
			}
		})
	}
}

// A run loads an image that the engine does not have, works in containers of its own,
// and leaves only the image, which the next run uses.
func TestRemoteContainers(t *testing.T) {
	r, state := newTestHost(t, "docker")
	archive := smallArchive(t)
	for i, name := range []string{"first", "second"} {
		r := withClaim(t, newVisit(t, filepath.Dir(r.Dir), name))
		if _, err := r.StartEngine(t.Context(), Engines(stack.Docker), "x86_64", archive); err != nil {
			t.Fatal(err)
		}
		p, err := r.Container(t.Context(), "web-mnt", "--network", "none")
		if want := (place.Container{Place: r.Place, Engine: "docker", Name: "unnest-run-" + name + "-web-mnt"}); err != nil || p != want {
			t.Errorf("got container %+v, %v; want %+v", p, err, want)
		}
		benchtest.Write(t, filepath.Join(state, "containers/mine"), "") // the user's
		benchtest.Write(t, filepath.Join(r.Dir, "web-mnt/file"), "")
		if err := r.remove(t.Context()); err != nil {
			t.Error(err)
		}
		if left := list(t, filepath.Join(state, "containers")); !slices.Equal(left, []string{"mine"}) {
			t.Errorf("containers left are %q", left)
		}
		if left := list(t, filepath.Dir(r.Dir)); len(left) > 0 {
			t.Errorf("directories left are %q", left)
		}
		calls, err := os.ReadFile(filepath.Join(state, "calls"))
		if loads := strings.Count(string(calls), "load\n"); err != nil || loads != 1 {
			t.Errorf("after run %d the image was loaded %d times (%v), want once", i+1, loads, err)
		}
	}
}

// A run removes the directories and containers of dead runs, but nothing that is in use
// or not from a run.
func TestRemoteReap(t *testing.T) {
	next, state := newTestHost(t, "nerdctl")
	parent := filepath.Dir(next.Dir)
	runs := map[string]*Host{}
	for _, name := range []string{"alive", "killed"} {
		r := withClaim(t, newVisit(t, parent, name))
		runs[name] = r
		if _, err := r.StartEngine(t.Context(), Engines(stack.Containerd), "x86_64", smallArchive(t)); err != nil {
			t.Fatal(err)
		}
		if _, err := r.Container(t.Context(), "web"); err != nil {
			t.Fatal(err)
		}
	}
	benchtest.Write(t, filepath.Join(parent, "unnest-mine/file"), "")
	benchtest.Write(t, filepath.Join(state, "containers/unnest-run-late-web"), "") // made after its run was gone
	if err := next.reap(t.Context()); err != nil {
		t.Fatal(err)
	}
	if left := list(t, parent); !slices.Equal(left, []string{"unnest-mine", "unnest-run-alive", "unnest-run-killed"}) {
		t.Fatalf("with both in use are left %q", left)
	}
	if err := runs["killed"].hold.Close(); err != nil { // as sshd does when the connection is gone
		t.Fatal(err)
	}
	awaitUnlocked(t, runs["killed"].Dir)
	if err := next.reap(t.Context()); err != nil {
		t.Fatal(err)
	}
	if left := list(t, parent); !slices.Equal(left, []string{"unnest-mine", "unnest-run-alive"}) {
		t.Errorf("directories left are %q", left)
	}
	if _, err := withClaim(t, next).StartEngine(t.Context(), Engines(stack.Containerd), "x86_64", smallArchive(t)); err != nil {
		t.Fatal(err)
	}
	if left := list(t, filepath.Join(state, "containers")); !slices.Equal(left, []string{"unnest-run-alive-web"}) {
		t.Errorf("containers left are %q", left)
	}
}

// awaitUnlocked waits until a directory is not locked.
func awaitUnlocked(t *testing.T, dir string) {
	t.Helper()
	f, err := os.Open(dir)
	if err == nil {
		err = errors.Join(unix.Flock(int(f.Fd()), unix.LOCK_EX), f.Close())
	}
	if err != nil {
		t.Fatal(err)
	}
}

// If the user is not root, a container removes the files that root wrote to a volume.
func TestRemoteRemoveVolume(t *testing.T) {
	r, state := newTestHost(t, "docker")
	if _, err := withClaim(t, r).StartEngine(t.Context(), Engines(stack.Docker), "x86_64", smallArchive(t)); err != nil {
		t.Fatal(err)
	}
	benchtest.Write(t, filepath.Join(r.Dir, "web-mnt/case/file"), "")
	// rm is refused as long as the file is there.
	bin := filepath.Dir(state)
	if err := os.Remove(filepath.Join(bin, "rm")); err != nil {
		t.Fatal(err)
	}
	benchtest.Write(t, filepath.Join(bin, "rm"), "#!/bin/sh\n[ ! -e "+filepath.Join(r.Dir, "web-mnt/case/file")+" ] && exec /bin/rm \"$@\"\n")
	if err := os.Chmod(filepath.Join(bin, "rm"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := r.remove(t.Context()); err != nil {
		t.Error(err)
	}
	if left := list(t, filepath.Dir(r.Dir)); len(left) > 0 {
		t.Errorf("left are %q", left)
	}
	benchtest.Write(t, filepath.Join(r.Dir, "file"), "") // nobody can remove it: there is no engine
	benchtest.Write(t, filepath.Join(bin, "rm"), "#!/bin/sh\nexit 1\n")
	if err := r.remove(t.Context()); err == nil || !benchtest.ContainsAll(err.Error(), r.Dir+" is left on ssh://h") {
		t.Errorf("got %v, want what is left", err)
	}
}
