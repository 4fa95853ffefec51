package hack

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// A daemon that refuses to start does not leave the package half configured.
func TestPostinstall(t *testing.T) {
	m := newMachine(t)
	m.program("systemctl", `[[ $* != try-restart* ]] || { echo "Job for unnest-hostd.service failed" >&2; exit 1; }`)
	cmd := exec.Command("/usr/bin/unshare", "--mount", "sh", "-ec", "mount -t tmpfs tmpfs /run; mkdir -p /run/systemd/system; exec sh ../deploy/package/postinstall configure 1")
	cmd.Env = m.env
	out, err := cmd.CombinedOutput()
	if want := "\nunnest: cannot restart the host daemon: "; err != nil || !strings.Contains(string(out), want) || strings.Count(string(out), "\n") != 2 {
		t.Errorf("got %v, %q; want one line with %q", err, out, want)
	}
}

// make test-install installs on all three releases by itself, and runs the quickstart on the first. The
// machine is fresh: it has no cache, and no programs but those of make deps.
func TestTestInstall(t *testing.T) {
	m := newMachine(t)
	cmd := exec.Command("make", "-n", "-C", "..", "RELEASES=", "test-install")
	out, err := cmd.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "\nhack/test-install bookworm trixie noble\n") {
		t.Errorf("make -n test-install: %v\n%s", err, out)
	}
	for _, name := range []string{"test-install", "host"} {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		m.write(filepath.Join(m.repo, "hack", name), string(text))
	}
	m.program("curl", "exit 127")
	m.program("dpkg-deb", "")
	m.program("mmdebstrap", "")
	m.program("unshare", "exit 1")
	if _, errs, err := m.run("host", "noble", "true"); err == nil || errs != "host: cannot make a root of noble\n" {
		t.Errorf("without curl: %v, %q; want the keys of Ubuntu's archive", err, errs)
	}

	m.write(filepath.Join(m.repo, "hack/host"), `#!/bin/bash
while [[ $1 == --share ]]; do [[ -d $2 ]] || { echo "no directory $2" >&2; exit 1; }; shift 2; done
echo "$1: $4"
`)
	m.write(filepath.Join(m.repo, "dist/unnest_1_amd64.deb"), "")
	m.write(filepath.Join(m.repo, "dist/unnest-1.x86_64.rpm"), "")
	if err := os.RemoveAll(m.home(".cache")); err != nil {
		t.Fatal(err)
	}
	outs, errs, err := m.run("test-install", "bookworm", "trixie", "noble")
	if err != nil || !strings.Contains(outs, "\nbookworm: quickstart\n") || !strings.Contains(outs, "\ntrixie: \n") || !strings.Contains(outs, "\nnoble: \n") {
		t.Errorf("test-install: %v\n%s%s", err, outs, errs)
	}
}
