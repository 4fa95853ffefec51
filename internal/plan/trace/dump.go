package trace

import (
	"bufio"
	"bytes"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"
)

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

// isYAML matches the beginning of objects that kubectl prints as YAML.
var isYAML = regexp.MustCompile(`(?m)\A(---.*\n|#.*\n|\s*\n)*["']?(apiVersion|kind|items|metadata)["']?:(\s|$)`)

// asJSON turns the YAML of objects into JSON, and returns anything else as it is.
func asJSON(path string, r io.Reader) (io.Reader, error) {
	in := bufio.NewReaderSize(r, 1<<12)
	head, _ := in.Peek(1 << 12) // a failure comes back from the next read
	if named := slices.Contains(yamlNames, filepath.Ext(strings.TrimSuffix(path, ".gz"))); !named && !isYAML.Match(head) {
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
