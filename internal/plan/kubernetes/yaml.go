package kubernetes

import (
	"bufio"
	"bytes"
	"io"
	"regexp"

	"sigs.k8s.io/yaml"
)

// IsYAML reports whether a text begins as objects do that kubectl prints as YAML.
func IsYAML(head []byte) bool { return beginning.Match(head) }

var beginning = regexp.MustCompile(`(?m)\A(---.*\n|#.*\n|\s*\n)*["']?(apiVersion|kind|items|metadata)["']?:(\s|$)`)

// AsJSON turns the YAML of objects into JSON. It returns anything else as it is, unless it always is
// YAML.
func AsJSON(r io.Reader, always bool) (io.Reader, error) {
	in := bufio.NewReaderSize(r, 1<<12)
	head, _ := in.Peek(1 << 12) // a failure comes back from the next read
	if !always && !IsYAML(head) {
		return in, nil
	}
	text, err := io.ReadAll(in)
	if err != nil {
		return nil, err
	}
	var all bytes.Buffer
	for document := range bytes.SplitSeq(append([]byte("\n"), text...), []byte("\n---")) {
		_, document, _ = bytes.Cut(document, []byte("\n")) // what follows the dashes
		converted, err := yaml.YAMLToJSON(document)
		if err != nil {
			return nil, err
		}
		if string(converted) != "null" {
			all.Write(converted)
		}
	}
	return &all, nil
}
