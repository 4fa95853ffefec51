package place

import (
	"strings"
	"testing"
)

// Whatever a command prints, its complaint has at most so many lines, and each has text and is one.
func FuzzComplaint(f *testing.F) {
	f.Add("elapsed: 1.0 s\tdocker.io/a:1: resolving |--| \nerror: no space\n", 3)
	f.Add(`time="2026-11-23T06:00:00Z" level=fatal msg="failed to resolve reference \"a/b:1\": not found"`, 1)
	f.Add("\x1b[0mtime=x level=error msg=\"\\q\"\r\n", 0)
	f.Fuzz(func(t *testing.T, stderr string, n int) {
		n = max(0, n)
		got := complaint(stderr, n)
		if len(got) > n {
			t.Errorf("%q: %d lines, want at most %d", stderr, len(got), n)
		}
		for _, line := range got {
			if strings.TrimSpace(line) == "" {
				t.Errorf("%q: got an empty line", stderr)
			}
		}
	})
}
