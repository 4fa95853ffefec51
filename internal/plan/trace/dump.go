package trace

import (
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
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
