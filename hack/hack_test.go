// Package hack tests the scripts that make calls, with programs of a fake machine.
package hack

import (
	"archive/zip"
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// machine is a copy of the scripts on a machine with fake programs.
type machine struct {
	t    *testing.T
	repo string
	bin  string // first in PATH
	env  []string
}

const wanted = "1.26.8" // of the fake go.mod

// newMachine returns a fresh Debian 12, as far as the scripts see it.
func newMachine(t *testing.T) *machine {
	t.Helper()
	if os.Getenv("UNNEST_PRIVILEGED") != "1" {
		t.Skip("needs Debian and /dev/net/tun: set UNNEST_PRIVILEGED=1")
	}
	m := &machine{t: t, repo: t.TempDir(), bin: t.TempDir()}
	m.write(filepath.Join(m.repo, "go.mod"), "module unnest\n\ngo "+wanted+"\n")
	for _, name := range []string{"go", "deps", "quickstart", "go.sum"} {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		m.write(filepath.Join(m.repo, "hack", name), string(text))
	}
	home := filepath.Join(t.TempDir(), "a home")
	if err := os.Mkdir(home, 0o755); err != nil {
		t.Fatal(err)
	}
	m.env = []string{"HOME=" + home, "PATH=" + m.bin + ":/usr/sbin:/usr/bin:/sbin:/bin"}
	m.program("go", `exit 127`) // as if there were none
	m.program("id", `echo 0`)
	m.program("unshare", ``)
	m.program("dpkg-query", `exit 1`)
	m.program("apt-helper", `exit 0`)
	m.program("apt-get", `case "$*" in
*--print-uris*) echo "'http://deb.debian.org/a.deb' a.deb 7000 SHA256:0"; echo "'http://deb.debian.org/b.deb' b.deb 900 SHA256:0" ;;
*--assume-no*) printf '0 upgraded, 2 newly installed, 0 to remove\nNeed to get 7,900 B of archives.\nAfter this operation, 21.5 kB of additional disk space will be used.\n'; exit 1 ;;
update) ;; *install*) echo "$*" >>"$HOME/installed" ;;
esac`)
	return m
}

func (m *machine) write(path, text string) {
	m.t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		m.t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o755); err != nil {
		m.t.Fatal(err)
	}
}

func (m *machine) program(name, script string) {
	m.t.Helper()
	m.write(filepath.Join(m.bin, name), "#!/bin/bash\n"+script+"\n")
}

// goProgram makes a go of a version in PATH. setting is its GOTOOLCHAIN.
func (m *machine) goProgram(version, setting string) {
	m.program("go", `case "$*" in version) echo "go version go`+version+` linux/amd64" ;;
"env GOTOOLCHAIN") echo "`+setting+`" ;; "env GOPROXY") echo "${GOPROXY:-https://proxy.golang.org,direct}" ;; esac`)
}

func (m *machine) home(path ...string) string {
	return filepath.Join(append([]string{strings.TrimPrefix(m.env[0], "HOME=")}, path...)...)
}

func (m *machine) run(script string, args ...string) (stdout, stderr string, err error) {
	cmd := exec.Command(filepath.Join(m.repo, "hack", script), args...)
	var out, errs bytes.Buffer
	cmd.Env, cmd.Stdout, cmd.Stderr = m.env, &out, &errs
	err = cmd.Run()
	return out.String(), errs.String(), err
}

// The plan says what is missing, in one line. The fresh machine has Debian's Go 1.19.
func TestQuickstartPlan(t *testing.T) {
	for _, tt := range []struct {
		name   string
		change func(*machine)
		want   string
	}{
		{"Debian's Go", func(m *machine) { m.goProgram("1.19.8", "") },
			"get Go 1.26.8 (72 MB), install 2 Debian packages (7,900 B to download, 21.5 kB on disk), unpack Debian 12 for the guest (100 MB), compile Unnest and nerdctl (Go modules, 260 MB), boot a guest and measure"},
		{"new Go", func(m *machine) { m.goProgram("1.27.1", "local") },
			"install 2 Debian packages (7,900 B to download, 21.5 kB on disk), unpack Debian 12 for the guest (100 MB), compile Unnest and nerdctl (Go modules, 260 MB), boot a guest and measure"},
		{"everything there", func(m *machine) {
			m.goProgram("1.26.8", "local")
			m.program("dpkg-query", "echo installed")
			m.program("apt-helper", "exit 1") // no network
			m.write(filepath.Join(m.repo, "bin/unnest"), "")
			m.write(filepath.Join(m.repo, "bin/nerdctl"), "")
			m.write(m.home(".cache/unnest/debian-1/root/etc/hostname"), "")
		}, "boot a guest and measure"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			m := newMachine(t)
			tt.change(m)
			want := fmt.Sprintf("quickstart: %s; caches are %s, %s and %s, logs %s\n", tt.want,
				m.home(".cache/unnest"), m.home("go"), m.home(".cache/go-build"), filepath.Join(m.repo, "bin/quickstart"))
			if out, errs, err := m.run("quickstart", "--dry-run", "one", "two"); out != want || errs != "" || err != nil {
				t.Errorf("got %q, %q, %v; want %q", out, errs, err, want)
			}
			if _, err := os.Stat(m.home("installed")); err == nil {
				t.Error("it installs packages")
			}
		})
	}
}

// A missing prerequisite is one line, and nothing is installed.
func TestQuickstartPrerequisites(t *testing.T) {
	for _, tt := range []struct{ name, program, script, want string }{
		{"architecture", "uname", "echo Linux aarch64", "this machine is Linux aarch64: use Linux on x86_64"},
		{"user", "id", "echo 1000", "not root: run sudo make quickstart"},
		{"memory", "sed", "[[ $* != */proc/meminfo ]] || { echo 1000000; exit; }; exec /usr/bin/sed \"$@\"", "976 MiB of memory are available, want 1024: stop other programs"},
		{"disk", "df", "printf 'Avail\n  100M\n'", "has 100 MiB of free disk space, want"},
		{"namespaces", "unshare", "exit 1", "cannot make a network namespace"},
		{"unknown package", "apt-get", "[[ $* == *update* ]] || { echo 'E: Unable to locate package two' >&2; exit 100; }",
			"cannot find packages one two: E: Unable to locate package two; see "},
		{"no mirror", "apt-helper", "[[ $* == *golang* ]] || { echo 'E: Failed to fetch: Could not resolve' >&2; exit 100; }",
			"cannot download packages: E: Failed to fetch: Could not resolve; see "},
		{"no proxy", "apt-helper", "[[ $* != *golang* ]] || { echo 'E: Failed to fetch: Could not resolve' >&2; exit 100; }",
			"cannot reach the Go module proxy: E: Failed to fetch: Could not resolve; see "},
	} {
		t.Run(tt.name, func(t *testing.T) {
			m := newMachine(t)
			m.program(tt.program, tt.script)
			out, errs, err := m.run("quickstart", "one", "two")
			if err == nil || out != "" || !strings.HasPrefix(errs, "quickstart: ") || !strings.Contains(errs, tt.want) || strings.Count(errs, "\n") != 1 {
				t.Errorf("got %q, %q, %v; want one line with %q", out, errs, err, tt.want)
			}
			if _, err := os.Stat(m.home("installed")); err == nil {
				t.Error("it installs packages")
			}
		})
	}
}

// A phase that fails ends the others, and the error names its log.
func TestQuickstartFails(t *testing.T) {
	m := newMachine(t)
	m.program("go", `[[ $1 == version ]] && echo "go version go1.26.8 linux/amd64" || touch "$5"`)
	m.program("make", `echo "x.go:1: undefined: y"; echo "make: *** [build] Error 1"; exit 2`)
	m.program("apt-get", `[[ $* != *--yes* ]] || exec sleep 60`)
	out, errs, err := m.run("quickstart", "one")
	log := filepath.Join(m.repo, "bin/quickstart/compile.log")
	if want := "quickstart: compile: make: *** [build] Error 1; see " + log + "\n"; err == nil || errs != want {
		t.Errorf("got %q, %v; want %q", errs, err, want)
	}
	if !strings.Contains(out, "quickstart: install packages ...\nquickstart: compile ...\n") {
		t.Errorf("got %q", out)
	}
}

// The go in PATH is used if it is new enough or gets the toolchain by itself.
func TestGoDirectory(t *testing.T) {
	for _, tt := range []struct {
		version, setting string
		own              bool
	}{
		{"1.19.8", "", false}, {"1.20.14", "", false}, {"1.26.7", "local", false}, {"1.22.1", "go1.22.1", false},
		{"1.26.8", "local", true}, {"1.26.10", "local", true}, {"1.27rc1", "local", true}, {"1.21.0", "auto", true}, {"1.22.1", "go1.23.0+auto", true},
	} {
		m := newMachine(t)
		m.goProgram(tt.version, tt.setting)
		want := m.home(".cache/unnest/golang.org/toolchain@v0.0.1-go1.26.8.linux-amd64/bin")
		if tt.own {
			want = m.bin
		}
		if out, errs, err := m.run("go"); strings.TrimSpace(out) != want || err != nil {
			t.Errorf("go %s, GOTOOLCHAIN=%s: got %q, %q, %v; want %s", tt.version, tt.setting, out, errs, err, want)
		}
	}
}

const module = "golang.org/toolchain@v0.0.1-go" + wanted + ".linux-amd64"

// proxy makes a module proxy in a directory. It returns its URL and the line of go.sum.
func proxy(t *testing.T, files map[string]string) (url, sum string) {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "golang.org/toolchain/@v")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	var archive bytes.Buffer
	w, all := zip.NewWriter(&archive), sha256.New()
	for _, name := range slices.Sorted(maps.Keys(files)) {
		f, err := w.Create(module + "/" + name)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := f.Write([]byte(files[name])); err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(all, "%x  %s/%s\n", sha256.Sum256([]byte(files[name])), module, name) // golang.org/x/mod/sumdb/dirhash
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "v0.0.1-go"+wanted+".linux-amd64.zip"), archive.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
	url, _ = strings.CutSuffix("file://"+dir, "/golang.org/toolchain/@v")
	return url, strings.Replace(module, "@", " ", 1) + " h1:" + base64.StdEncoding.EncodeToString(all.Sum(nil)) + "\n"
}

// The toolchain comes from the first proxy that has it, once, with modes that let it run.
func TestGoGet(t *testing.T) {
	m := newMachine(t)
	if err := os.Remove(filepath.Join(m.bin, "apt-helper")); err != nil {
		t.Fatal(err)
	}
	url, sum := proxy(t, map[string]string{
		"bin/go": "#!/bin/sh\necho it is go\n", "pkg/tool/linux_amd64/compile": "#!/bin/sh\n", "src/a b.go": "package a\n", "VERSION": "go\n",
	})
	m.write(filepath.Join(m.repo, "hack/go.sum"), sum)
	m.env = append(m.env, "GOPROXY=file:///nowhere,direct|"+url)
	for _, turn := range []string{"download", "no download"} {
		if _, errs, err := m.run("go", "get"); err != nil {
			t.Fatalf("%s: %v: %s", turn, err, errs)
		}
		m.env[len(m.env)-1] = "GOPROXY=off"
	}
	dir, _, err := m.run("go")
	if err != nil {
		t.Fatal(err)
	}
	dir = strings.TrimSpace(dir)
	if out, err := exec.Command(filepath.Join(dir, "go")).Output(); string(out) != "it is go\n" || err != nil {
		t.Errorf("got %q, %v", out, err)
	}
	if err := exec.Command(filepath.Join(dir, "../pkg/tool/linux_amd64/compile")).Run(); err != nil {
		t.Error(err)
	}
}

// A toolchain with another checksum is not kept.
func TestGoGetWrongChecksum(t *testing.T) {
	m := newMachine(t)
	if err := os.Remove(filepath.Join(m.bin, "apt-helper")); err != nil {
		t.Fatal(err)
	}
	url, sum := proxy(t, map[string]string{"bin/go": "evil", "pkg/tool/linux_amd64/compile": ""}) // not that of hack/go.sum
	m.env = append(m.env, "GOPROXY="+url)
	_, errs, err := m.run("go", "get")
	have := strings.TrimSpace(sum[strings.Index(sum, "h1:"):])
	if err == nil || !strings.Contains(errs, "has checksum "+have+", want h1:ZOmG") || strings.Count(errs, "\n") != 1 {
		t.Errorf("got %q, %v; want the checksums", errs, err)
	}
	if left, _ := filepath.Glob(m.home(".cache/unnest/golang.org/*")); len(left) != 1 || filepath.Base(left[0]) != "lock" {
		t.Errorf("left in the cache: %v", left)
	}
}

// hack/go.sum has the toolchain that go.mod wants. Take the sum from
// https://sum.golang.org/lookup/golang.org/toolchain@VERSION.
func TestToolchainSum(t *testing.T) {
	text, err := os.ReadFile("../go.mod")
	if err != nil {
		t.Fatal(err)
	}
	version := regexp.MustCompile(`(?m)^go (\S+)$`).FindStringSubmatch(string(text))
	sum, err := os.ReadFile("go.sum")
	if err != nil || version == nil || !strings.HasPrefix(string(sum), "golang.org/toolchain v0.0.1-go"+version[1]+".linux-amd64 h1:") {
		t.Errorf("go.mod wants %v, go.sum has %q, %v", version, sum, err)
	}
}
