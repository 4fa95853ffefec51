package trace

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"unnest.io/unnest/internal/plan/kubernetes"
)

// guessed is how many bytes of a file Guess reads.
const guessed = 64 << 10

// Guess returns the format of a file by its content: a dump of kubectl, or a table whose header
// names the columns of a format. Of standard input, it returns what must be read in its place.
func Guess(ctx context.Context, path string, stdin io.Reader) (format string, rest io.Reader, err error) {
	files, _, err := dumpFiles([]string{path})
	if err == nil {
		files, err = expand(files)
	}
	if err != nil {
		return "", stdin, err
	}
	r, err := open(ctx, files[0], stdin)
	if err != nil {
		return "", stdin, err
	}
	in := bufio.NewReaderSize(r, guessed)
	if path == stdinPath {
		stdin = in
	} else {
		defer r.Close()
	}
	head, err := in.Peek(guessed)
	if len(head) == 0 && err != io.EOF { //nolint:errorlint // Peek returns it as it is
		return "", stdin, inFile(path, err)
	}
	if format = formatOf(head); format == "" {
		return "", stdin, fmt.Errorf("%s: is neither a dump of kubectl nor a table with the header of a format: name the format, such as csv:%s; the formats are %s",
			display(path), path, strings.Join(Formats(), ", "))
	}
	return format, stdin, nil
}

// formatOf returns the format of a file that begins with head; empty: unknown.
func formatOf(head []byte) string {
	head = bytes.TrimSpace(head)
	if bytes.HasPrefix(head, []byte("{")) {
		for _, key := range []string{`"items"`, `"kind"`, `"apiVersion"`, `"spec"`} {
			if bytes.Contains(head, []byte(key)) {
				return kubectlFormat
			}
		}
		return ""
	}
	if kubernetes.IsYAML(head) {
		return kubectlFormat
	}
	first, _, _ := bytes.Cut(head, []byte{'\n'})
	names := strings.Split(string(bytes.TrimSpace(first)), ",")
	for _, format := range builtinNames() {
		c := builtinColumns(format)
		t := c.tables[0]
		if c.json || t.columns != nil {
			continue
		}
		if !slices.ContainsFunc(t.cells[:len(t.cells)-t.optional], func(cell string) bool { return !slices.Contains(names, cell) }) {
			return format
		}
	}
	return ""
}

// dumpFiles returns the files of a cluster's dump. A directory stands for the JSON and YAML files
// anywhere in it, which are walked, as "kubectl cluster-info dump --output-directory" and
// must-gather write them; without such files, for the files in it.
func dumpFiles(paths []string) (files []string, walked map[string]bool, err error) {
	walked = map[string]bool{}
	for _, path := range paths {
		found := []string{path}
		if info, err := os.Stat(path); err == nil && info.IsDir() {
			below, err := walk(path)
			if err != nil {
				return nil, nil, err
			}
			for _, file := range below {
				walked[file] = true
			}
			if len(below) > 0 {
				found = below
			}
		}
		files = append(files, found...)
	}
	return files, walked, nil
}

// walk returns the JSON and YAML files below a directory. It skips hidden ones, and those that begin
// with an underscore.
func walk(dir string) (files []string, err error) {
	err = filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case path != dir && (strings.HasPrefix(e.Name(), ".") || strings.HasPrefix(e.Name(), "_")):
			if e.IsDir() {
				return fs.SkipDir
			}
		case !e.IsDir() && slices.Contains(append(yamlNames, ".json"), filepath.Ext(strings.TrimSuffix(path, ".gz"))):
			files = append(files, path)
		}
		return nil
	})
	return files, err
}

var yamlNames = []string{".yaml", ".yml"}
