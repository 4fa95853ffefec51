// Package experiments holds the studies that come with unnest, as experiment
// files. What a file means belongs to package experiment.
package experiments

import (
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"
)

// FS holds the files, named <experiment>.yaml.
//
//go:embed *.yaml
var FS embed.FS

// List returns the names of the experiments in alphabetical order.
func List() []string {
	var names []string
	entries, _ := FS.ReadDir(".") // the embedded root can always be read
	for _, e := range entries {
		names = append(names, strings.TrimSuffix(e.Name(), ".yaml"))
	}
	slices.Sort(names) // not the order of the files: "levels.yaml" comes after "levels-reserved.yaml"
	return names
}

// Open returns the file of the experiment called name, and the name under
// which errors should speak of it.
func Open(name string) (file string, data []byte, err error) {
	file = path.Base(name) + ".yaml"
	data, err = FS.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil, fmt.Errorf("no experiment %q comes with unnest: there are %s; a file is named by a path such as ./%s",
			name, strings.Join(List(), ", "), file)
	}
	return path.Join("experiments", file), data, err
}
