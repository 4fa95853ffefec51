package plan

import (
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"

	"unnest/internal/plan/cluster"
)

// Where the weights of links come from, unless it is a file.
const (
	linksAll         = "all"         // every two containers of a pod, by a weight of 1
	linksAnnotations = "annotations" // of the pods of a kubectl dump
)

// linkColumns are the columns of a file of links, in any order.
var linkColumns = []string{"user", "pod", "a", "b", "weight"}

// namedLink is a row of a file of links.
type namedLink struct {
	line   int
	a, b   string
	weight float64
}

// linkFile is the rows of a file of links, by user and pod as the trace names them.
type linkFile struct {
	name   string
	of     map[string]map[string][]namedLink
	first  [2]string // user and pod of the first row
	rows   int
	joined int // rows whose pods the trace has
}

// readLinks reads a CSV file with a header.
func readLinks(name string) (*linkFile, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, fmt.Errorf("links: %w: name a CSV file, %s or %s", err, linksAll, linksAnnotations)
	}
	defer f.Close()
	r := csv.NewReader(f)
	header, err := r.Read()
	if err != nil {
		return nil, fmt.Errorf("links %s: %w: the first line must name %s", name, err, strings.Join(linkColumns, ","))
	}
	var at [5]int
	for i, column := range linkColumns {
		if at[i] = slices.Index(header, column); at[i] < 0 {
			return nil, fmt.Errorf("links %s: the header lacks the column %s: the first line must name %s", name, column, strings.Join(linkColumns, ","))
		}
	}
	l := &linkFile{name: name, of: map[string]map[string][]namedLink{}}
	for {
		row, err := r.Read()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, fmt.Errorf("links %s: %w", name, err)
		}
		line, _ := r.FieldPos(0)
		weight, err := strconv.ParseFloat(row[at[4]], 64)
		if err != nil || !(weight >= 0) || math.IsInf(weight, 1) {
			return nil, fmt.Errorf("links %s:%d: weight %q: want a number from 0", name, line, row[at[4]])
		}
		l.add(row[at[0]], row[at[1]], namedLink{line, row[at[2]], row[at[3]], weight})
	}
	if l.rows == 0 {
		return nil, fmt.Errorf("links %s: has no rows", name)
	}
	return l, nil
}

func (l *linkFile) add(user, pod string, link namedLink) {
	if l.rows == 0 {
		l.first = [2]string{user, pod}
	}
	l.rows++
	if l.of[user] == nil {
		l.of[user] = map[string][]namedLink{}
	}
	l.of[user][pod] = append(l.of[user][pod], link)
}

// attach gives the pods of a user their links.
func (l *linkFile) attach(u cluster.User) error {
	for i := range u.Pods {
		p := &u.Pods[i]
		links := l.of[u.Name][p.Name]
		if len(links) == 0 {
			continue
		}
		index := map[string]int{}
		for k, c := range p.Containers {
			index[c.Name] = k
		}
		for _, link := range links {
			a, knownA := index[link.a]
			b, knownB := index[link.b]
			if !knownA || !knownB || a == b {
				return fmt.Errorf("links %s:%d: pod %s of user %s has no two containers %q and %q", l.name, link.line, p.Name, u.Name, link.a, link.b)
			}
			p.Links = append(p.Links, cluster.Link{A: a, B: b, Weight: link.weight})
		}
		l.joined += len(links)
	}
	return nil
}

// joinLinks gives the pods of all users their links, and says how many rows are of
// pods that the trace does not have, or not any more.
func (l *linkFile) joinLinks(users []cluster.User) (unused int, err error) {
	for _, u := range users {
		if err := l.attach(u); err != nil {
			return 0, err
		}
	}
	if l.joined == 0 {
		return 0, fmt.Errorf("links %s: no row is of a pod that was kept of the trace, the first is of user %q, pod %q: name both as the trace does", l.name, l.first[0], l.first[1])
	}
	return l.rows - l.joined, nil
}
