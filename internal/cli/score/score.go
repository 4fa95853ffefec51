// Package score is the command "unnest score": it reads results from a CSV file and
// prints their scores.
package score

import (
	"bufio"
	"bytes"
	"context"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"unnest.io/unnest/internal/cli/document"
	"unnest.io/unnest/internal/cli/terminal"
	"unnest.io/unnest/internal/cli/usage"
	"unnest.io/unnest/internal/measure/result"
	"unnest.io/unnest/internal/measure/score"
	"unnest.io/unnest/internal/report/scores"
)

// Options are the arguments and flags of the command.
type Options struct {
	Streams terminal.Streams
	File    string // - is standard input
	Score   score.Options
	Output  document.Output
}

// NewCmd returns the command, which calls run.
func NewCmd(streams terminal.Streams, run func(context.Context, Options) error) *cobra.Command {
	opts := Options{Streams: streams}
	cmd := &cobra.Command{
		Use:   "score FILE.csv",
		Short: "Compute the total scores of suites, and say what the totals hide",
		Long: `Compute the total scores of suites of results, and say what the totals hide.

The file has a header with the columns suite, case, order, unit, configuration
and value, in any order. Other columns and lines that begin with # are ignored.
order is HIB (higher is better) or LIB (lower is better), value a positive number.
Rows of the same case and configuration are repetitions; their mean counts. The
file - is standard input.

A score is a mean divided by the highest mean of all configurations in the case.
The total is the sum of the scores less those of LIB cases. Totals depend on which
configurations and cases are in the file. The geometric mean of the ratios to the
baseline, above 1 where a configuration is better, does not depend on the other
configurations. Its 95 % interval says how much the ratio differs from case to
case. Warnings name the cases and configurations without which the order by total
is different.

A case without results in some configuration counts in no total, unless --partial
is given.`,
		Example: `  unnest score results.csv
  unnest score results.csv --baseline metal.local --json
  unnest score results.csv -o scores.html
  unnest score - < results.csv`,
		Args: usage.Args("FILE.csv"),
		RunE: func(cmd *cobra.Command, args []string) error {
			opts.File = args[0]
			return run(cmd.Context(), opts)
		},
	}
	cmd.Flags().StringVar(&opts.Score.Baseline, "baseline", "", "`NAME` of the configuration that geometric means are relative to (default: the first of each suite)")
	cmd.Flags().BoolVar(&opts.Score.Partial, "partial", false, "count cases without results in some configuration, and mark those totals as partial")
	opts.Output.AddFlags(cmd)
	opts.Output.AddJSONFlag(cmd, "print an object with suites by name")
	return cmd
}

// Run prints the scores of a file.
func Run(_ context.Context, opts Options) error {
	if err := opts.Output.Check(); err != nil {
		return err
	}
	suites, err := load(opts)
	if err != nil {
		return err
	}
	return opts.Output.Print(opts.Streams, scores.Build(suites))
}

// columns are the required columns of a file.
var columns = []string{"suite", "case", "order", "unit", "configuration", "value"}

func load(opts Options) ([]score.Suite, error) {
	name, input := opts.File, opts.Streams.In
	if name == "-" {
		name = "standard input"
	} else {
		file, err := os.Open(name)
		if err != nil {
			return nil, fmt.Errorf("read %s: %w: name a CSV file, or - for standard input", name, document.WithoutPath(err))
		}
		defer file.Close()
		input = file
	}
	t, err := read(input)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", name, document.WithoutPath(err))
	}
	suites, err := score.Suites(t.rows, opts.Score)
	if row, ok := errors.AsType[*score.RowError](err); ok {
		return nil, fmt.Errorf("read %s: %w", name, wrong(t.lines[row.Row], row.Column, row.Text))
	}
	if err != nil {
		return nil, fmt.Errorf("score %s: %w", name, err)
	}
	return suites, nil
}

func wrong(line int, column, text string) error {
	return fmt.Errorf("line %d, column %s: %s", line, column, text)
}

// table is the rows of a file, with their line numbers.
type table struct {
	rows  []score.Row
	lines []int
}

// read reads CSV (RFC 4180) with a header. It drops space around fields, lines that begin
// with # and a byte order mark.
func read(input io.Reader) (table, error) {
	buffered := bufio.NewReader(input)
	if mark, _ := buffered.Peek(3); bytes.Equal(mark, []byte("\ufeff")) {
		_, _ = buffered.Discard(len(mark)) // cannot fail after Peek
	}
	reader := csv.NewReader(buffered)
	reader.Comment = '#'
	reader.FieldsPerRecord = -1
	at, width, err := readHeader(reader)
	if err != nil {
		return table{}, err
	}
	var t table
	for {
		fields, err := reader.Read()
		if errors.Is(err, io.EOF) {
			return t, nil
		}
		if err != nil {
			return table{}, explain(err)
		}
		line, _ := reader.FieldPos(0)
		if len(fields) != width {
			return table{}, fmt.Errorf("line %d: %d fields, but the header has %d: give each column one field, and quote fields that contain commas", line, len(fields), width)
		}
		row, err := parse(func(column string) string { return strings.TrimSpace(fields[at[column]]) })
		if err != nil {
			return table{}, wrong(line, "value", err.Error())
		}
		t.rows, t.lines = append(t.rows, row), append(t.lines, line)
	}
}

// readHeader returns the index of each column and the number of columns.
func readHeader(reader *csv.Reader) (at map[string]int, width int, err error) {
	begin := "begin the file with a line " + strings.Join(columns, ",")
	fields, err := reader.Read()
	if errors.Is(err, io.EOF) {
		return nil, 0, errors.New("the file is empty: " + begin)
	}
	if err != nil {
		return nil, 0, explain(err)
	}
	line, _ := reader.FieldPos(0)
	at = map[string]int{}
	for i, field := range fields {
		name := strings.TrimSpace(field)
		if _, twice := at[name]; twice && slices.Contains(columns, name) {
			return nil, 0, wrong(line, name, "appears twice: remove or rename one")
		}
		at[name] = i
	}
	missing := slices.DeleteFunc(slices.Clone(columns), func(name string) bool { _, has := at[name]; return has })
	if len(missing) > 0 {
		return nil, 0, fmt.Errorf("line %d: the header lacks %s: %s", line, strings.Join(missing, ", "), begin)
	}
	return at, len(fields), nil
}

// parse makes a row of its fields. Its errors are about the value.
func parse(field func(column string) string) (score.Row, error) {
	row := score.Row{
		Suite: field("suite"), Case: field("case"), Order: result.Order(field("order")),
		Unit: field("unit"), Configuration: field("configuration"),
	}
	value, err := strconv.ParseFloat(field("value"), 64)
	if err != nil && !errors.Is(err, strconv.ErrRange) { // out of range: infinite
		return score.Row{}, fmt.Errorf("%q is not a number: write one such as 12.5", field("value"))
	}
	row.Value = value
	return row, nil
}

// explain adds the fix to an error of the CSV reader.
func explain(err error) error {
	e, ok := errors.AsType[*csv.ParseError](err)
	if !ok {
		return err
	}
	return fmt.Errorf("line %d, character %d: %w: quote fields that contain quotes, and double the quotes inside", e.Line, e.Column, e.Err)
}
