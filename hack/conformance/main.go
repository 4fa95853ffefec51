// Command conformance keeps the results of upstream's tests of Kubernetes and writes the page about
// them: docs/results/kubernetes-conformance. Its arguments are JUnit files of e2e.test; a test that
// several files have counts as in the last one. Without arguments it writes the page again.
package main

import (
	"encoding/xml"
	"errors"
	"fmt"
	"io/fs"
	"os"
)

// The files that the command writes, next to each other.
const (
	keptFile = "docs/results/kubernetes-conformance.xml"
	pageFile = "docs/results/kubernetes-conformance.md"
)

func main() {
	if err := publish(keptFile, pageFile, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "conformance:", err)
		os.Exit(1)
	}
}

// publish adds the JUnit files to the kept results and writes the page.
func publish(kept, page string, paths []string) error {
	all, err := read(kept)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	for _, path := range paths {
		more, err := read(path)
		if err != nil {
			return err
		}
		all = merge(all, inScope(more))
	}
	content, err := xml.MarshalIndent(all, "", " ")
	if err != nil {
		return fmt.Errorf("write %s: %w", kept, err)
	}
	if err := os.WriteFile(kept, append(content, '\n'), 0o644); err != nil {
		return err
	}
	return os.WriteFile(page, []byte(render(all)), 0o644)
}

func read(path string) (s suites, err error) {
	content, err := os.ReadFile(path)
	if err == nil {
		err = xml.Unmarshal(content, &s)
	}
	if err != nil {
		return s, fmt.Errorf("read results of %s: %w", path, err)
	}
	return s, nil
}
