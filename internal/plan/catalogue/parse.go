package catalogue

import (
	"bytes"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"unnest.io/unnest/internal/plan/cluster"
)

// Prices say which prices of a catalogue count. The zero value stands for the column price.
type Prices struct {
	Term string // the column price_TERM; empty: price
	// VCPU and GiB are the prices of a vCPU and of a GiB of memory for an hour, billionths of a
	// dollar. They are for models without a price, unless both are 0.
	VCPU, GiB int64
}

// columns of a catalogue file, and those that it may have after them.
var (
	columns = []string{"model", "vcpu", "memory", "price", "pods"}
	extra   = []string{"arch", "gpus", "offered"}
)

// priceColumn begins the names of columns with prices under other terms.
const priceColumn = "price_"

// table is a catalogue file that is read.
type table struct {
	prices Prices
	terms  []string
	at     map[string]int // index of each column
}

// Parse reads a catalogue from CSV with the columns model, vcpu, memory (such as 8 GiB), price
// (dollars for an hour) and pods (the maximum; empty: no limit), in this order. Further columns
// may be arch (amd64 or arm64; empty: amd64), gpus, offered (the memory that VMs really have;
// empty: all) and price_TERM, where price_spot is the price of spot VMs. Models without a price
// at the term are left out. Lines that begin with # are comments. Errors name file and line.
func (p Prices) Parse(file string, data []byte) (cluster.Catalogue, error) {
	r := csv.NewReader(bytes.NewReader(bytes.TrimPrefix(data, []byte("\ufeff"))))
	r.Comment, r.TrimLeadingSpace = '#', true
	header, err := r.Read()
	if err != nil {
		return nil, fmt.Errorf("%s: read the header %s: %w", file, strings.Join(columns, ","), err)
	}
	t, err := p.header(header)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	var c cluster.Catalogue
	seen := map[string]bool{}
	for {
		row, err := r.Read()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		line, _ := r.FieldPos(0)
		m, sold, err := t.model(row)
		if err != nil {
			return nil, fmt.Errorf("%s line %d: %w", file, line, err)
		}
		if seen[m.Name] {
			return nil, fmt.Errorf("%s line %d: model %s appears twice", file, line, m.Name)
		}
		seen[m.Name] = true
		if sold {
			c = append(c, m)
		}
	}
	switch {
	case len(c) == 0 && len(seen) > 0:
		return nil, fmt.Errorf("%s: no model has a price in the column %s%s", file, priceColumn, p.Term)
	case len(c) == 0:
		return nil, fmt.Errorf("%s: has no models: want at least one line after the header", file)
	}
	return c, nil
}

func (p Prices) header(names []string) (table, error) {
	t := table{prices: p, at: map[string]int{}}
	if len(names) < len(columns) || !slices.Equal(names[:len(columns)], columns) {
		return t, fmt.Errorf("the header is %s: want %s", strings.Join(names, ","), strings.Join(columns, ","))
	}
	for i, name := range names {
		term, isPrice := strings.CutPrefix(name, priceColumn)
		if _, twice := t.at[name]; twice || i >= len(columns) && !isPrice && !slices.Contains(extra, name) {
			return t, fmt.Errorf("the column %q of the header is unknown or appears twice: want %s, and after them any of %s and %sTERM", name,
				strings.Join(columns, ","), strings.Join(extra, ","), priceColumn)
		}
		if isPrice {
			t.terms = append(t.terms, term)
		}
		t.at[name] = i
	}
	if p.Term != "" && !slices.Contains(t.terms, p.Term) {
		return t, fmt.Errorf("has no column %s%s: its terms are %s", priceColumn, p.Term, strings.Join(append([]string{"the price on demand"}, t.terms...), ", "))
	}
	return t, nil
}

// cell returns a column of a row, empty if there is none.
func (t table) cell(row []string, name string) string {
	if i, has := t.at[name]; has {
		return strings.TrimSpace(row[i])
	}
	return ""
}

// model reads a row, and reports whether the model has a price at the term.
func (t table) model(row []string) (m cluster.Model, sold bool, err error) {
	cell := func(name string) string { return t.cell(row, name) }
	if m.Name = cell("model"); m.Name == "" {
		return m, false, errors.New("model: want a name")
	}
	fail := func(column, want string) (cluster.Model, bool, error) {
		return cluster.Model{}, false, fmt.Errorf("%s %q of %s: want %s", column, row[t.at[column]], m.Name, want)
	}
	if m.Size.CPU, err = parseDecimal(cell("vcpu")); err != nil || m.Size.CPU <= 0 || m.Size.CPU > mostCPU {
		return fail("vcpu", "a number above 0, at most a million")
	}
	if m.Size.Memory, err = parseMemory(cell("memory")); err != nil {
		return cluster.Model{}, false, fmt.Errorf("memory %q of %s: %w", cell("memory"), m.Name, err)
	}
	m.Nominal = m.Size
	if text := cell("offered"); text != "" {
		if m.Size.Memory, err = parseMemory(text); err != nil || m.Size.Memory > m.Nominal.Memory {
			return fail("offered", "a positive number with KiB, MiB, GiB or TiB, at most the memory")
		}
	}
	if text := cell("pods"); text != "" {
		if m.Pods, err = strconv.Atoi(text); err != nil || m.Pods < 1 {
			return fail("pods", "a number from 1, or nothing for no limit")
		}
	}
	if text := cell("gpus"); text != "" {
		if m.GPUs, err = strconv.Atoi(text); err != nil || m.GPUs < 0 {
			return fail("gpus", "a number from 0")
		}
	}
	if m.Arch = cell("arch"); m.Arch != "" && m.Arch != "amd64" && m.Arch != "arm64" {
		return fail("arch", "amd64 or arm64")
	}
	if text := cell(priceColumn + "spot"); text != "" {
		if m.Spot, err = parsePrice(text); err != nil {
			return fail(priceColumn+"spot", "dollars for an hour, such as 0.112")
		}
	}
	column := "price"
	if t.prices.Term != "" {
		column = priceColumn + t.prices.Term
	}
	text := cell(column)
	switch {
	case text == "" && t.prices.Term != "":
		return m, false, nil
	case text == "" && t.prices.VCPU+t.prices.GiB > 0:
		m.Price, err = t.prices.Of(m.Nominal)
		return m, true, err
	}
	if m.Price, err = parsePrice(text); err != nil {
		return fail(column, "dollars for an hour, such as 0.112")
	}
	return m, true, nil
}

func parsePrice(text string) (int64, error) { return parseDecimal(strings.TrimPrefix(text, "$")) }

// Of returns the price of a size, by its vCPUs and memory.
func (p Prices) Of(size cluster.Resources) (int64, error) {
	const gib = 1 << 30
	price := float64(size.CPU)/cluster.VCPU*float64(p.VCPU) + float64(size.Memory)/gib*float64(p.GiB)
	if price > 1e9*cluster.Dollar {
		return 0, fmt.Errorf("a VM of %s costs more than 1e9 $/h at these prices: correct the prices of a vCPU and a GiB", size)
	}
	return int64(price + .5), nil
}

// WithoutGPUs returns the models on which pods are planned.
func WithoutGPUs(c cluster.Catalogue) cluster.Catalogue {
	return slices.DeleteFunc(slices.Clone(c), func(m cluster.Model) bool { return m.GPUs > 0 })
}
