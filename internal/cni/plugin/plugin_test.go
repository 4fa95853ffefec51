package plugin

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// stdout returns what f writes to the standard output.
func stdout(t *testing.T, f func()) []byte {
	t.Helper()
	path := filepath.Join(t.TempDir(), "out")
	file, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	defer func(old *os.File) { os.Stdout = old }(os.Stdout)
	os.Stdout = file
	f()
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return content
}

var plugins = []Plugin{{Name: "brfusion"}, {Name: "hostlo"}}

func TestUnknownName(t *testing.T) {
	for _, name := range []string{"/opt/cni/bin/unnest-cni", "hostlo0", ""} {
		var stderr bytes.Buffer
		exit := 0
		out := stdout(t, func() { exit = Main(name, &stderr, plugins...) })
		var answer struct {
			Code uint
			Msg  string
		}
		if err := json.Unmarshal(out, &answer); err != nil {
			t.Errorf("%q: %s: %v", name, out, err)
		}
		want := "install this binary, or a link to it, as brfusion or hostlo"
		if exit != 1 || answer.Code == 0 || !strings.Contains(answer.Msg, want) || strings.Count(stderr.String(), "\n") != 1 {
			t.Errorf("%q: exit %d, stderr %q, answer %+v", name, exit, &stderr, answer)
		}
	}
}

func TestVersion(t *testing.T) {
	t.Setenv("CNI_COMMAND", "VERSION")
	t.Setenv("CNI_PATH", "/")
	for _, name := range []string{"brfusion", "hostlo"} {
		exit := 0
		out := stdout(t, func() { exit = Main("/opt/cni/bin/"+name, os.Stderr, plugins...) })
		if exit != 0 || !strings.Contains(string(out), `"supportedVersions":["0.3.1","0.4.0","1.0.0","1.1.0"]`) {
			t.Errorf("%s: exit %d, answer %s", name, exit, out)
		}
	}
}
