package trace

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
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
