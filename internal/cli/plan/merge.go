package plan

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"unnest/internal/cli/terminal"
	"unnest/internal/cli/usage"
)

// newMergeCmd returns "unnest plan merge".
func newMergeCmd(streams terminal.Streams) *cobra.Command {
	var output Output
	cmd := &cobra.Command{
		Use:   "merge FILE.json...",
		Short: "Put the results of shards, or of pieces of a trace, together",
		Long: `Put results of unnest plan --json together into one, as if all had been planned at
once. A directory stands for the .json files in it.

Of shards of one trace (--shard I/N) all N must be there. Results without --shard
are of different pieces of a trace, each of which has other users.`,
		Example: `  unnest plan merge 0.json 1.json 2.json
  unnest plan merge out/ --json -o all.json --html all.html`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				return usage.Errorf("missing argument FILE.json")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			merged, err := mergeFiles(cmd.Context(), args)
			if err != nil {
				return fmt.Errorf("merge: %w", err)
			}
			return output.write(streams, merged)
		},
	}
	output.AddFlags(cmd)
	return cmd
}

// piece is a result with the file that it is from.
type piece struct {
	file string
	Result
}

func mergeFiles(ctx context.Context, paths []string) (Result, error) {
	var pieces []piece
	for _, path := range paths {
		files, err := resultFiles(path)
		if err != nil {
			return Result{}, err
		}
		for _, file := range files {
			if err := context.Cause(ctx); err != nil {
				return Result{}, err
			}
			p, err := readPiece(file)
			if err != nil {
				return Result{}, err
			}
			pieces = append(pieces, p)
		}
	}
	return merge(pieces)
}

// resultFiles returns the file, or the JSON files of a directory.
func resultFiles(path string) ([]string, error) {
	info, err := os.Stat(path)
	if err != nil || !info.IsDir() {
		return []string{path}, err
	}
	files, err := filepath.Glob(filepath.Join(path, "*.json"))
	if err == nil && len(files) == 0 {
		err = fmt.Errorf("%s: has no .json files: write them with unnest plan --shard I/N --json -o %s", path, filepath.Join(path, "I.json"))
	}
	return files, err
}

func readPiece(file string) (piece, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return piece{}, err
	}
	p := piece{file: file}
	if err := json.Unmarshal(data, &p.Result); err != nil {
		return piece{}, fmt.Errorf("%s: %w: want what unnest plan --json has written", file, err)
	}
	if p.PerUser == nil || len(p.Settings.Catalogue) == 0 {
		return piece{}, fmt.Errorf("%s: is no result of a plan: want what unnest plan --json has written", file)
	}
	return p, nil
}

// merge puts results together. The order of the pieces does not matter.
func merge(pieces []piece) (Result, error) {
	slices.SortStableFunc(pieces, func(a, b piece) int { return cmp.Compare(a.order(), b.order()) })
	first := pieces[0]
	var users []User
	seen := map[string]string{} // user -> file
	for _, p := range pieces {
		if !reflect.DeepEqual(p.Settings, first.Settings) {
			return Result{}, fmt.Errorf("%s and %s were planned with other options or catalogues: plan both with the same", first.file, p.file)
		}
		for _, u := range p.PerUser {
			if before, twice := seen[u.Name]; twice {
				return Result{}, fmt.Errorf("user %s is in %s and in %s: name each shard once, and pieces that share no users", u.Name, before, p.file)
			}
			seen[u.Name] = p.file
			users = append(users, u)
		}
	}
	readings, err := mergeReadings(pieces)
	if err != nil {
		return Result{}, err
	}
	slices.SortFunc(users, func(a, b User) int { return cmp.Compare(a.Name, b.Name) })
	return newResult(users, first.Settings, readings, nil), nil
}

func (p piece) order() int {
	if p.Shard == nil {
		return 0
	}
	return p.Shard.Index
}

// mergeReadings returns what was read: of shards, which all read the same, what the
// first did; else all.
func mergeReadings(pieces []piece) ([]Reading, error) {
	first := pieces[0]
	var all []Reading
	found := map[int]string{} // shard -> file
	for _, p := range pieces {
		switch {
		case (p.Shard == nil) != (first.Shard == nil), p.Shard != nil && p.Shard.Of != first.Shard.Of:
			return nil, fmt.Errorf("%s and %s are not shards of the same number: merge the N files of --shard I/N, or pieces without --shard", first.file, p.file)
		case p.Shard == nil:
			all = append(all, p.Traces...)
			continue
		case !reflect.DeepEqual(p.Traces, first.Traces):
			return nil, fmt.Errorf("%s and %s are shards of different traces: read the same in each", first.file, p.file)
		case found[p.Shard.Index] != "":
			return nil, fmt.Errorf("%s and %s are both shard %d", found[p.Shard.Index], p.file, p.Shard.Index)
		}
		found[p.Shard.Index] = p.file
	}
	if first.Shard == nil {
		return all, nil
	}
	return first.Traces, allShards(found, first.Shard.Of)
}

// allShards returns an error unless every shard was found.
func allShards(found map[int]string, of int) error {
	var missing []string
	for i := range of {
		if found[i] == "" {
			missing = append(missing, strconv.Itoa(i))
		}
	}
	if len(missing) > 0 {
		return errors.New("of " + plural(of, "shard") + " these are missing: " + strings.Join(missing, ", "))
	}
	return nil
}
