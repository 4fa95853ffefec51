package plan

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"unnest.io/unnest/internal/cli/terminal"
	"unnest.io/unnest/internal/cli/usage"
	"unnest.io/unnest/internal/plan/summary"
	"unnest.io/unnest/internal/report/plans"
)

func newMergeCmd(streams terminal.Streams) *cobra.Command {
	var output Output
	cmd := &cobra.Command{
		Use:   "merge FILE.json...",
		Short: "Combine the results of shards, or of pieces of a trace",
		Long: `Combine results of unnest plan --json into one, as if all users had been planned at
once. A directory stands for the .json files in it.

Shards of one trace (--shard I/N) must be complete. Results without --shard must be
of pieces of a trace that share no users.`,
		Example: `  unnest plan merge 0.json 1.json 2.json
  unnest plan merge out/ -o all.json -o all.html`,
		Args: usage.Some("FILE.json"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := output.check(); err != nil {
				return err
			}
			merged, err := mergeFiles(cmd.Context(), args)
			if err != nil {
				return fmt.Errorf("merge: %w", err)
			}
			return output.write(streams, plans.Plan(merged))
		},
	}
	output.addFlags(cmd)
	return cmd
}

func mergeFiles(ctx context.Context, paths []string) (summary.Plan, error) {
	var pieces []summary.Piece
	for _, path := range paths {
		files, err := resultFiles(path)
		if err != nil {
			return summary.Plan{}, err
		}
		for _, file := range files {
			if err := context.Cause(ctx); err != nil {
				return summary.Plan{}, err
			}
			p, err := readPiece(file)
			if err != nil {
				return summary.Plan{}, err
			}
			pieces = append(pieces, p)
		}
	}
	return summary.Merge(pieces)
}

// resultFiles returns the file, or the JSON files of a directory.
func resultFiles(path string) ([]string, error) {
	info, err := os.Stat(path)
	if err != nil || !info.IsDir() {
		return []string{path}, err
	}
	files, err := filepath.Glob(filepath.Join(path, "*.json"))
	if err == nil && len(files) == 0 {
		err = fmt.Errorf("%s: has no .json files: write them with unnest plan --shard I/N -o %s", path, filepath.Join(path, "I.json"))
	}
	return files, err
}

func readPiece(file string) (summary.Piece, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return summary.Piece{}, err
	}
	p := summary.Piece{File: file}
	if err := json.Unmarshal(data, &p.Plan); err != nil {
		return summary.Piece{}, fmt.Errorf("%s: %w: want a file written by unnest plan --json", file, err)
	}
	var other struct {
		Schema int             `json:"schema_version"` // 0: of a version without it
		Cost   json.RawMessage `json:"cost"`           // which --links and --replay lack
	}
	if err := json.Unmarshal(data, &other); err != nil || other.Schema > plans.Version {
		return summary.Piece{}, fmt.Errorf("%s: schema_version %d is of a later unnest: merge with that one", file, other.Schema)
	}
	if p.PerUser == nil || other.Cost == nil || len(p.Settings.Catalogue) == 0 {
		return summary.Piece{}, fmt.Errorf("%s: is not the result of a plan: want a file written by unnest plan --json, without --links and --replay", file)
	}
	return p, nil
}
