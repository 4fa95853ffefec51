package trace

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// stdinPath is the path that stands for standard input.
const (
	stdinPath = "-"
	stdinName = "standard input"
)

// display returns the name of a path in messages.
func display(path string) string {
	if path == stdinPath {
		return stdinName
	}
	return path
}

// expand returns the files that paths name. It matches globs, because the shell passes
// quoted ones on. A directory stands for the files in it.
func expand(paths []string) ([]string, error) {
	var files []string
	for _, path := range paths {
		info, err := os.Stat(path)
		switch {
		case path == stdinPath:
			files = append(files, path)
		case err == nil && info.IsDir():
			found, err := inside(path)
			if err != nil {
				return nil, err
			}
			if len(found) == 0 {
				return nil, fmt.Errorf("%s: the directory has no files: name the one with the trace", path)
			}
			files = append(files, found...)
		case err == nil:
			files = append(files, path)
		case !errors.Is(err, fs.ErrNotExist) || !strings.ContainsAny(path, "*?["):
			return nil, fmt.Errorf("%w: name a file, a directory or a glob of the trace", err)
		default:
			found, err := matches(path)
			if err != nil {
				return nil, err
			}
			files = append(files, found...)
		}
	}
	return once(files), nil
}

// once returns each file once, in the order of the first mentions.
func once(files []string) []string {
	named := map[string]bool{}
	return slices.DeleteFunc(files, func(path string) bool {
		before := named[filepath.Clean(path)]
		named[filepath.Clean(path)] = true
		return before
	})
}

// matches returns the files of a glob. That there are none is an error.
func matches(glob string) ([]string, error) {
	found, err := filepath.Glob(glob)
	if err != nil {
		return nil, fmt.Errorf("glob %q: %w: close its brackets", glob, err)
	}
	if len(found) == 0 {
		return nil, fmt.Errorf("no file matches %q: check the directory and the ending", glob)
	}
	var files []string
	for _, path := range found {
		nested, err := inside(path)
		if err != nil {
			return nil, err
		}
		files = append(files, nested...)
	}
	return files, nil
}

// inside returns the files of a directory by name, or the file itself. It skips hidden
// files, and those that begin with an underscore, such as the _SUCCESS of Spark.
func inside(path string) ([]string, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if !info.IsDir() {
		return []string{path}, nil
	}
	entries, err := os.ReadDir(path)
	if err != nil {
		return nil, err
	}
	var files []string
	for _, e := range entries {
		if !e.IsDir() && !strings.HasPrefix(e.Name(), ".") && !strings.HasPrefix(e.Name(), "_") {
			files = append(files, filepath.Join(path, e.Name()))
		}
	}
	return files, nil
}

// tables sorts the files of a trace by table. A directory holds one directory for each
// table, or files whose names begin with the table's. A file belongs to the table that its
// name begins with or that its directory is named after, else to the table "".
func tables(paths []string, names ...string) (map[string][]string, error) {
	found := map[string][]string{}
	for _, path := range paths {
		info, err := os.Stat(path)
		if err == nil && info.IsDir() && !slices.Contains(names, filepath.Base(path)) {
			if err := tablesInside(path, names, found); err != nil {
				return nil, err
			}
			continue
		}
		files, err := expand([]string{path})
		if err != nil {
			return nil, err
		}
		for _, f := range files {
			name := tableOf(f, names)
			found[name] = append(found[name], f)
		}
	}
	for name := range found {
		found[name] = once(found[name])
	}
	return found, nil
}

func tablesInside(dir string, names []string, found map[string][]string) error {
	some := false
	for _, name := range names {
		entries, err := filepath.Glob(filepath.Join(dir, name+"*"))
		if err != nil {
			return fmt.Errorf("directory %q: %w", dir, err)
		}
		for _, path := range entries {
			files, err := inside(path)
			if err != nil {
				return err
			}
			found[name] = append(found[name], files...)
			some = some || len(files) > 0
		}
	}
	if !some {
		return fmt.Errorf("%s: has none of the tables %s: name the directory that holds them", dir, strings.Join(names, ", "))
	}
	return nil
}

func tableOf(file string, names []string) string {
	base, dir := filepath.Base(file), filepath.Base(filepath.Dir(file))
	for _, name := range names {
		if strings.HasPrefix(base, name) || dir == name {
			return name
		}
	}
	return ""
}

// joined returns the files of the table that is joined to another. If none are named, it
// looks for them next to the other table.
func joined(with, named []string, name, join string) ([]string, error) {
	if len(named) > 0 {
		return named, nil
	}
	dir := filepath.Dir(with[0])
	if filepath.Base(dir) == name {
		dir = filepath.Dir(dir)
	}
	path := filepath.Join(dir, join)
	if files, err := matches(path + "*"); err == nil && len(files) > 0 {
		return files, nil
	}
	return nil, fmt.Errorf("%s: the table %s is missing: put it next to %s", path, join, name)
}
