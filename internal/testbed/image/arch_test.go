package image

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestParseArch(t *testing.T) {
	for name, want := range map[string]Arch{
		"amd64": AMD64, "x86_64": AMD64, "arm64": ARM64, "aarch64": ARM64, "s390x": S390X,
		"": "", "AMD64": "", "i386": "", "s390": "", "riscv64": "",
	} {
		got, err := ParseArch(name)
		if got != want || (err == nil) != (want != "") {
			t.Errorf("%q: got %q, %v; want %q", name, got, err, want)
		}
		if err != nil && !strings.Contains(err.Error(), "want amd64, arm64 or s390x") {
			t.Errorf("%q: %v", name, err)
		}
	}
}

// A binary of another architecture is refused before an image is made. A script has no
// architecture.
func TestCheckProgram(t *testing.T) {
	program := filepathOf(t, "true")
	script := []byte("#!/bin/sh\n")
	for _, a := range Arches() {
		err := a.checkBinary("/a/program", bytes.NewReader(program))
		if own := string(a) == runtime.GOARCH; (err == nil) != own {
			t.Errorf("%s: a program of this machine: got %v", a, err)
		} else if !own && (!strings.Contains(err.Error(), "/a/program") || !strings.Contains(err.Error(), "GOARCH="+string(a))) {
			t.Errorf("%s: got %v; want the program and the fix", a, err)
		}
		if err := a.checkBinary("/a/script", bytes.NewReader(script)); err != nil {
			t.Errorf("%s: a script: %v", a, err)
		}
	}
}

func filepathOf(t *testing.T, program string) []byte {
	t.Helper()
	path, err := exec.LookPath(program)
	if err != nil {
		t.Fatal(err)
	}
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return content
}

// The files that scripts of packages would make are made. Files of the packages stay.
func TestConfigure(t *testing.T) {
	root := t.TempDir()
	if err := addFiles(root, map[string][]byte{
		"/usr/share/base-passwd/passwd.master": []byte("root:*:0:0:root:/root:/bin/bash\n"),
		"/usr/share/base-passwd/group.master":  []byte("root:*:0:\n"),
		"/usr/sbin/iptables-save":              []byte("its own"), "/usr/bin/mawk": nil, "/usr/sbin/xtables-nft-multi": nil,
	}); err != nil {
		t.Fatal(err)
	}
	if err := configure(root); err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for _, path := range []string{"/etc/passwd", "/etc/group", "/etc/shells", "/usr/sbin/iptables-save"} {
		content, err := os.ReadFile(root + path)
		if err != nil {
			t.Error(err)
		}
		got[path] = string(content)
	}
	for _, path := range []string{"/usr/bin/awk", "/usr/sbin/iptables"} {
		target, err := os.Readlink(root + path)
		if err != nil {
			t.Error(err)
		}
		got[path] = target
	}
	want := map[string]string{
		"/etc/passwd": "root:*:0:0:root:/root:/bin/bash\n", "/etc/group": "root:*:0:\n", "/etc/shells": "/bin/sh\n/bin/bash\n",
		"/usr/sbin/iptables-save": "its own", "/usr/bin/awk": "mawk", "/usr/sbin/iptables": "xtables-nft-multi",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("files (-want +got):\n%s", diff)
	}
	if info, err := os.Stat(root + "/tmp"); err != nil || info.Mode().Perm() != 0o777 || info.Mode()&os.ModeSticky == 0 {
		t.Errorf("/tmp: %v, %v; want it open to all, sticky", info, err)
	}
	if err := configure(t.TempDir()); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("without a base: got %v", err)
	}
}
