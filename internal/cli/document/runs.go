package document

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"unnest.io/unnest/internal/measure/result"
	"unnest.io/unnest/internal/measure/rundir"
	"unnest.io/unnest/internal/report/document"
)

// RunsDir is the default parent of run directories.
const RunsDir = "runs"

// FoundRun is a run and its directory.
type FoundRun struct {
	Dir string
	Run result.Run
}

// FindRuns returns the runs in the directories below parent, the newest first, and why others cannot be read.
// It reads no samples, so a journal may be damaged.
func FindRuns(parent string) (found []FoundRun, unreadable []error, err error) {
	entries, err := os.ReadDir(parent)
	if err != nil {
		return nil, nil, fmt.Errorf("list runs: %w: name the directory that holds runs", err)
	}
	for _, e := range entries {
		dir := filepath.Join(parent, e.Name())
		switch run, err := rundir.ReadRun(dir); {
		case errors.Is(err, fs.ErrNotExist), errors.Is(err, unix.ENOTDIR): // not a run
		case err != nil:
			unreadable = append(unreadable, err)
		default:
			found = append(found, FoundRun{dir, run})
		}
	}
	slices.SortFunc(found, func(a, b FoundRun) int {
		return cmp.Or(b.Run.Started.Compare(a.Run.Started), cmp.Compare(a.Dir, b.Dir))
	})
	return found, unreadable, nil
}

// CompleteRuns completes an argument or flag that names a run directory.
func CompleteRuns(_ *cobra.Command, given []string, word string) (found []cobra.Completion, _ cobra.ShellCompDirective) {
	parent := filepath.Dir(word)
	if word == "" {
		parent = RunsDir
	}
	runs, _, _ := FindRuns(parent)
	for _, r := range runs {
		if !slices.Contains(given, r.Dir) {
			found = append(found, cobra.CompletionWithDesc(r.Dir, document.Clean(fmt.Sprintf("%s, %s", r.Run.Experiment, r.Run.State))))
		}
	}
	if len(found) == 0 {
		return nil, cobra.ShellCompDirectiveFilterDirs
	}
	return found, cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveKeepOrder
}
