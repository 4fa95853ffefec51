package guestimage

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"net/http"
	"os"
	"path"
	"path/filepath"
	"strings"

	"unnest.io/unnest/internal/measure/experiment"
	"unnest.io/unnest/internal/measure/suite"
	"unnest.io/unnest/internal/measure/workload"
	"unnest.io/unnest/internal/testbed/image"
	"unnest.io/unnest/internal/testbed/place"
)

// find returns the path of a file that is built or downloaded.
func (i *Images) find(ctx context.Context, f suite.File) (string, error) {
	if f.Built == "" {
		return fetch(ctx, http.DefaultClient, f, i.Builder.Cache)
	}
	path := filepath.Join(i.binaries, f.Built)
	if _, err := os.Stat(path); err != nil {
		return "", fmt.Errorf("%w: run `make %s`", err, f.Make)
	}
	return path, nil
}

// filesOf are the files of a case that no Debian package has.
func filesOf(c experiment.Case) []suite.File {
	switch {
	case c.Local != nil:
		return c.Local.Files
	case c.Probe == "":
		return workload.ExtraOf(c.Workload()).Files
	}
	return nil
}

// mavenCentral is the repository of files with Maven coordinates.
const mavenCentral = "https://repo1.maven.org/maven2/"

// maxFetched is the largest file that is downloaded, in bytes.
const maxFetched = 64 << 20

// fetch returns the path of the file in the cache, and downloads it first when it
// is not there as a whole.
func fetch(ctx context.Context, client *http.Client, f suite.File, cache string) (string, error) {
	target := filepath.Join(cache, "file-"+f.SHA256)
	if content, err := os.ReadFile(target); err == nil && sumOf(content) == f.SHA256 && image.MarkUsed(target) {
		return target, nil
	}
	parts := strings.Split(f.Maven, ":")
	if len(parts) != 3 {
		return "", fmt.Errorf("file %q: want Maven coordinates GROUP:ARTIFACT:VERSION", f.Maven)
	}
	group, artifact, version := parts[0], parts[1], parts[2]
	url := mavenCentral + path.Join(strings.ReplaceAll(group, ".", "/"), artifact, version, artifact+"-"+version+".jar")
	content, err := download(ctx, client, url)
	if err != nil {
		return "", fmt.Errorf("fetch %s: %w", url, err)
	}
	if sum := sumOf(content); sum != f.SHA256 {
		return "", fmt.Errorf("fetch %s: its SHA-256 is %s, want %s", url, sum, f.SHA256)
	}
	if err := os.MkdirAll(cache, 0o755); err != nil { // no image has been built yet
		return "", err
	}
	return target, place.Local{}.Put(ctx, target, 0o644, bytes.NewReader(content))
}

func sumOf(content []byte) string { return fmt.Sprintf("%x", sha256.Sum256(content)) }

func download(ctx context.Context, client *http.Client, url string) ([]byte, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	answer, err := client.Do(request)
	if err != nil {
		return nil, err
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("the server answers %s", answer.Status)
	}
	return io.ReadAll(io.LimitReader(answer.Body, maxFetched))
}
