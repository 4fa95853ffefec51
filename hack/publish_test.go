package hack

import (
	"bytes"
	"compress/gzip"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestPublish publishes runs in a copy of the repository, with a fake unnest that prints the
// title of a run as its page.
func TestPublish(t *testing.T) {
	repo := t.TempDir()
	write := func(path, text string) {
		t.Helper()
		path = filepath.Join(repo, path)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	pack := func(path, text string) {
		t.Helper()
		var buf bytes.Buffer
		w := gzip.NewWriter(&buf)
		if _, err := io.WriteString(w, text); err != nil {
			t.Fatal(err)
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		write(path, buf.String())
	}
	read := func(path string) string {
		t.Helper()
		text, err := os.ReadFile(filepath.Join(repo, path))
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	publish := func(args ...string) (string, error) {
		t.Helper()
		out, err := exec.Command(filepath.Join(repo, "hack/publish"), args...).CombinedOutput()
		return string(out), err
	}
	script, err := os.ReadFile("publish")
	if err != nil {
		t.Fatal(err)
	}
	write("hack/publish", string(script))
	if out, err := publish(); err == nil || !strings.Contains(out, "run make build") {
		t.Errorf("without bin/unnest: %v, %s", err, out)
	}
	write("bin/unnest", "#!/bin/sh\necho \"# Title\"; zcat \"$2/samples.jsonl.gz\"\n")
	write("done/run.json", "{\n  \"state\": \"complete\",\n}\n")
	write("done/samples.jsonl", "first\n")
	write("half/run.json", "{\n  \"state\": \"interrupted\",\n}\n")
	write("half/samples.jsonl", "half\n")

	if out, err := publish("disk", filepath.Join(repo, "half")); err == nil || !strings.Contains(out, "is interrupted, not complete") {
		t.Errorf("interrupted run: %v, %s", err, out)
	}
	if out, err := publish("disk", repo); err == nil || !strings.Contains(out, "name a run directory of unnest bench") {
		t.Errorf("no run: %v, %s", err, out)
	}
	if out, err := publish("../disk", filepath.Join(repo, "done")); err == nil || !strings.Contains(out, "want small letters") {
		t.Errorf("name of another directory: %v, %s", err, out)
	}
	write("docs/results/disk.md", "# Written by hand\n")
	if out, err := publish("disk", filepath.Join(repo, "done")); err != nil || read("docs/results/disk.md") != "# Title\nfirst\n" {
		t.Errorf("a run: %v, %s, page %q", err, out, read("docs/results/disk.md"))
	}
	pack("docs/results/runs/disk/samples.jsonl.gz", "changed\n")
	pack("docs/results/runs/aa/samples.jsonl.gz", "aa\n")
	write("docs/results/aa.md", "# Written by hand\n")
	out, err := publish()
	if err != nil || !strings.Contains(out, "keep docs/results/aa.md, which was written by hand") {
		t.Errorf("all pages: %v, %s", err, out)
	}
	if disk, aa := read("docs/results/disk.md"), read("docs/results/aa.md"); disk != "# Title\nchanged\n" || aa != "# Written by hand\n" {
		t.Errorf("pages %q and %q", disk, aa)
	}
}
