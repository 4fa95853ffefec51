package guestimage

import (
	"crypto/sha256"
	"encoding/hex"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"unnest.io/unnest/internal/measure/suite"
)

// answer is a transport that gives the same answer to every request.
type answer struct {
	status int
	body   string
}

func (a answer) RoundTrip(r *http.Request) (*http.Response, error) {
	return &http.Response{
		StatusCode: a.status, Status: http.StatusText(a.status), Body: io.NopCloser(strings.NewReader(a.body)), Request: r,
	}, nil
}

func TestFetch(t *testing.T) {
	sum := sha256.Sum256([]byte("jar"))
	file := suite.File{Maven: "org.example:tool:1.0", SHA256: hex.EncodeToString(sum[:])}
	const url = "https://repo1.maven.org/maven2/org/example/tool/1.0/tool-1.0.jar"
	for _, tt := range []struct {
		name   string
		answer answer
		file   suite.File
		want   string // the error; empty: none
	}{
		{"found", answer{200, "jar"}, file, ""},
		{"not found", answer{404, "gone"}, file, "fetch " + url + ": the server answers Not Found"},
		{"another file", answer{200, "other"}, file, "fetch " + url + ": its SHA-256 is "},
		{"no coordinates", answer{}, suite.File{Maven: "tool", SHA256: "0"}, `file "tool": want Maven coordinates GROUP:ARTIFACT:VERSION`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			cache := filepath.Join(t.TempDir(), "cache") // which nobody has made yet
			path, err := fetch(t.Context(), &http.Client{Transport: tt.answer}, tt.file, cache)
			if tt.want != "" {
				if err == nil || !strings.HasPrefix(err.Error(), tt.want) || strings.Contains(err.Error(), "%!") {
					t.Errorf("got %v, want %q", err, tt.want)
				}
				return
			}
			if content, readErr := os.ReadFile(path); err != nil || readErr != nil || string(content) != "jar" || filepath.Dir(path) != cache {
				t.Errorf("%s holds %q: %v, %v", path, content, err, readErr)
			}
			if err := os.Truncate(path, 0); err != nil { // as a power cut leaves it
				t.Fatal(err)
			}
			again, err := fetch(t.Context(), &http.Client{Transport: tt.answer}, tt.file, cache)
			if content, readErr := os.ReadFile(again); err != nil || readErr != nil || string(content) != "jar" {
				t.Errorf("truncated: %s holds %q: %v, %v", again, content, err, readErr)
			}
		})
	}
}

// Missing binaries are reported before a guest image is made.
func TestBuildImageWithoutPrograms(t *testing.T) {
	t.Setenv("UNNEST_CACHE", t.TempDir())
	dir := t.TempDir()
	_, err := Build(t.Context(), dir, func(step string) { t.Errorf("it begins to %s", step) })
	if err == nil || !strings.Contains(err.Error(), dir) || !strings.Contains(err.Error(), "make build") {
		t.Errorf("got %v; want an error that names `make build`", err)
	}
}

// The files of the server are missing before anything is brought up, and the error says how to
// build them.
func TestServedWithoutBundle(t *testing.T) {
	k := slices.IndexFunc(suite.All(), func(c suite.Case) bool { return c.Name == "trade" })
	i := &Images{binaries: t.TempDir()}
	_, err := i.find(t.Context(), suite.All()[k].Files[0])
	if err == nil || !strings.Contains(err.Error(), "run `make trade-bundle`") {
		t.Errorf("got %v", err)
	}
}
