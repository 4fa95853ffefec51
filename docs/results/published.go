// Package results has the published runs, as files.
package results

import "embed"

// Runs has a run directory runs/NAME for each published run.
//
//go:embed runs/*/run.json runs/*/samples.jsonl.gz
var Runs embed.FS
