package kubernetes

import (
	"bufio"
	"bytes"
	"encoding/json"
	"io"
	"regexp"
	"strings"

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

// ItemKind returns the kind of the items of a list that do not name theirs, as API servers send
// them; empty: unknown.
func ItemKind(list string, raw []byte) string {
	if kind := strings.TrimSuffix(list, "List"); kind != "" {
		return kind
	}
	var shape struct {
		Spec   struct{ Containers json.RawMessage }
		Status struct{ Allocatable, Capacity json.RawMessage }
	}
	if json.Unmarshal(raw, &shape) == nil && shape.Spec.Containers == nil && (shape.Status.Allocatable != nil || shape.Status.Capacity != nil) {
		return "Node"
	}
	return ""
}

// NodeOf returns the node of a pod that is not valid, empty if it names none.
func NodeOf(raw []byte) (name string) {
	var p struct {
		Spec struct{ NodeName json.RawMessage }
	}
	_ = json.Unmarshal(raw, &p) // other fields may be wrong
	_ = json.Unmarshal(p.Spec.NodeName, &name)
	return name
}
