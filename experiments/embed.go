// Package experiments contains the built-in studies, as experiment files. Package
// experiment parses them.
package experiments

import (
	"embed"
	"fmt"
	"path"
	"slices"
	"strings"
)

// FS has the files, named <experiment>.yaml.
//
//go:embed *.yaml
var FS embed.FS

// List returns the names of the experiments in alphabetical order.
func List() []string {
	var names []string
	entries, _ := FS.ReadDir(".") // the embedded root is always readable
	for _, e := range entries {
		names = append(names, strings.TrimSuffix(e.Name(), ".yaml"))
	}
	slices.Sort(names) // in the order of files, "levels.yaml" follows "levels-reserved.yaml"
	return names
}

// Open returns the file of the experiment called name, and its path for errors.
func Open(name string) (file string, data []byte, err error) {
	file = path.Base(name) + ".yaml"
	if data, err = FS.ReadFile(file); err != nil {
		return "", nil, fmt.Errorf("no experiment %q: there are %s", name, strings.Join(List(), ", "))
	}
	return path.Join("experiments", file), data, nil
}
