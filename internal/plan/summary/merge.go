package summary

import (
	"cmp"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
)

// Piece is a plan with the file that it is from.
type Piece struct {
	File string
	Plan
}

// Merge puts plans together: all shards of one trace, or pieces of a trace that
// share no users. There must be a piece; their order does not matter.
func Merge(pieces []Piece) (Plan, error) {
	slices.SortStableFunc(pieces, func(a, b Piece) int { return cmp.Compare(a.order(), b.order()) })
	first := pieces[0]
	var users []User
	seen := map[string]string{} // user -> file
	for _, p := range pieces {
		if p.Today != nil {
			return Plan{}, fmt.Errorf("%s compares a cluster with its nodes, which cannot be merged: plan the cluster at once", p.File)
		}
		if p.Use != nil {
			return Plan{}, fmt.Errorf("%s has requests by use, which cannot be merged: plan the trace with --use at once", p.File)
		}
		if !reflect.DeepEqual(p.Settings.result(), first.Settings.result()) {
			return Plan{}, fmt.Errorf("%s and %s were planned with other options or catalogues: plan both with the same", first.File, p.File)
		}
		for _, u := range p.PerUser {
			if before, twice := seen[u.Name]; twice {
				return Plan{}, fmt.Errorf("user %s is in %s and in %s: name each shard once, and pieces that share no users", u.Name, before, p.File)
			}
			seen[u.Name] = p.File
			users = append(users, u)
		}
	}
	if err := Addable(users); err != nil {
		return Plan{}, err
	}
	readings, err := mergeReadings(pieces)
	if err != nil {
		return Plan{}, err
	}
	slices.SortFunc(users, func(a, b User) int { return cmp.Compare(a.Name, b.Name) })
	return Sum(users, first.Settings, readings, nil), nil
}

func (p Piece) order() int {
	if p.Shard == nil {
		return 0
	}
	return p.Shard.Index
}

// mergeReadings returns the readings of the first shard, because all shards read the
// same; of pieces without shards, all readings.
func mergeReadings(pieces []Piece) ([]Reading, error) {
	first := pieces[0]
	var all []Reading
	found := map[int]string{} // shard -> file
	for _, p := range pieces {
		switch {
		case (p.Shard == nil) != (first.Shard == nil), p.Shard != nil && p.Shard.Of != first.Shard.Of:
			return nil, fmt.Errorf("%s and %s are not shards of the same number: merge the N files of --shard I/N, or pieces without --shard", first.File, p.File)
		case p.Shard == nil:
			all = append(all, p.Traces...)
			continue
		case !reflect.DeepEqual(p.Traces, first.Traces):
			return nil, fmt.Errorf("%s and %s are shards of different traces: read the same in each", first.File, p.File)
		case found[p.Shard.Index] != "":
			return nil, fmt.Errorf("%s and %s are both shard %d", found[p.Shard.Index], p.File, p.Shard.Index)
		}
		found[p.Shard.Index] = p.File
	}
	if first.Shard == nil {
		return all, nil
	}
	var missing []string
	for i := range first.Shard.Of {
		if found[i] == "" {
			missing = append(missing, strconv.Itoa(i))
		}
	}
	if len(missing) > 0 {
		return nil, errors.New("of " + strconv.Itoa(first.Shard.Of) + " shards these are missing: " + strings.Join(missing, ", "))
	}
	return first.Traces, nil
}
