package document

import (
	"cmp"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/spf13/cobra"

	"unnest/internal/measure/result"
	"unnest/internal/measure/rundir"
)

// RunsDir is the default parent of run directories.
const RunsDir = "runs"

// Runs are the run directories below a directory, the newest first.
type Runs struct {
	Dirs       []string
	Of         []result.Run // as long as Dirs
	Unreadable []string     // directories whose run file this version cannot read
}

// FindRuns looks for runs in the directories below parent. It reads no samples, so a journal may be damaged.
func FindRuns(parent string) (r Runs, err error) {
	entries, err := os.ReadDir(parent)
	if err != nil {
		return r, fmt.Errorf("list runs: %w", err)
	}
	runs := map[string]result.Run{}
	for _, e := range entries {
		dir := filepath.Join(parent, e.Name())
		data, err := os.ReadFile(filepath.Join(dir, rundir.RunFile))
		if err != nil { // not a run
			continue
		}
		var run result.Run
		if err := json.Unmarshal(data, &run); err != nil || run.Schema > result.Schema {
			r.Unreadable = append(r.Unreadable, dir)
			continue
		}
		runs[dir] = run
		r.Dirs = append(r.Dirs, dir)
	}
	slices.SortFunc(r.Dirs, func(a, b string) int {
		return cmp.Or(runs[b].Started.Compare(runs[a].Started), cmp.Compare(a, b))
	})
	for _, dir := range r.Dirs {
		r.Of = append(r.Of, runs[dir])
	}
	return r, nil
}

// CompleteRuns completes an argument or flag that names a run directory.
func CompleteRuns(_ *cobra.Command, given []string, word string) (found []cobra.Completion, _ cobra.ShellCompDirective) {
	parent := filepath.Dir(word)
	if word == "" {
		parent = RunsDir
	}
	runs, _ := FindRuns(parent)
	for i, dir := range runs.Dirs {
		if !slices.Contains(given, dir) {
			found = append(found, cobra.CompletionWithDesc(dir, fmt.Sprintf("%s, %s", runs.Of[i].Experiment, runs.Of[i].State)))
		}
	}
	if len(found) == 0 {
		return nil, cobra.ShellCompDirectiveFilterDirs
	}
	return found, cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveKeepOrder
}
