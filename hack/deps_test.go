package hack

import (
	"os"
	"strings"
	"testing"
)

// fakeApt knows the packages that the file known lists; an update brings those of the file mirror.
func (m *machine) fakeApt(installed, known, mirror string) {
	m.write(m.home("known"), known)
	m.write(m.home("mirror"), mirror)
	m.program("dpkg-query", `[[ " `+installed+` " == *" ${!#} "* ]] && echo installed`)
	m.program("apt-cache", `for one in $(<"$HOME/known"); do
[[ $2 != "$one" ]] || printf '%s:\n  Installed: (none)\n  Candidate: 1.0\n' "$2"; done
[[ $2 != removed ]] || printf 'removed:\n  Installed: (none)\n  Candidate: (none)\n'`)
	m.program("apt-get", `case "$*" in *update*) cp "$HOME/mirror" "$HOME/known" ;;
*--yes*--download-only*) ;; *install*) echo "${@:7}" >>"$HOME/installed" ;; esac`)
}

// Of alternatives, the first that the release has is wanted.
func TestDepsAlternatives(t *testing.T) {
	for _, tt := range []struct {
		name, installed, known, wanted, missing string
	}{
		{"all there", "a b", "a b", "a b", ""},
		{"one missing", "a", "a b", "a b", "b"},
		{"first installed", "jdk17", "jdk17 jdk21", "jdk17|jdk21", ""},
		{"first available", "", "jdk17 jdk21", "jdk17|jdk21", "jdk17"},
		{"second available", "", "jdk21", "jdk17|jdk21", "jdk21"},
		{"second installed, first available", "qemu", "own qemu", "own|qemu", "own"},
		{"second installed, first unknown", "qemu", "qemu", "own|qemu", ""},
		{"first without candidate", "", "jdk21", "removed|jdk21", "jdk21"},
		{"none known", "", "", "jdk17|jdk21 b", "jdk17 b"},
		{"three", "", "c", "a|b|c", "c"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			m := newMachine(t)
			m.fakeApt(tt.installed, tt.known, tt.known)
			out, errs, err := m.run("deps", append([]string{"--missing"}, strings.Fields(tt.wanted)...)...)
			if strings.TrimSpace(out) != tt.missing || errs != "" || err != nil {
				t.Errorf("got %q, %q, %v; want %q", out, errs, err, tt.missing)
			}
		})
	}
}

// Before the first update apt knows no package. The choice is made after it.
func TestDepsChooseAfterUpdate(t *testing.T) {
	m := newMachine(t)
	m.fakeApt("", "", "jdk21 b")
	if out, errs, err := m.run("deps", "jdk17|jdk21", "b"); out != "" || errs != "" || err != nil {
		t.Fatalf("got %q, %q, %v", out, errs, err)
	}
	got, err := os.ReadFile(m.home("installed"))
	if err != nil || strings.TrimSpace(string(got)) != "jdk21 b" {
		t.Errorf("it installs %q, %v; want jdk21 b", got, err)
	}
}
