// Package catalogue reads price lists of VMs: its own, which are CSV files in the binary,
// and those of users. It also computes what a model leaves for pods after the
// reservations of the kubelet, the system and DaemonSets.
package catalogue

import (
	"bytes"
	"embed"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"unnest/internal/plan/cluster"
)

//go:embed *.csv
var catalogues embed.FS

// Names returns the names of the built-in catalogues. The paper's is bacou; the others are
// families of AWS EC2, on demand in us-east-1.
func Names() []string {
	entries, err := catalogues.ReadDir(".")
	if err != nil {
		panic(fmt.Sprintf("read the embedded catalogues: %v", err)) // they are part of the program
	}
	var names []string
	for _, e := range entries {
		names = append(names, strings.TrimSuffix(e.Name(), ".csv"))
	}
	return names
}

// PriceDate says where the prices of a built-in catalogue are from, and of when; empty for a file.
func PriceDate(name string) string {
	data, err := catalogues.ReadFile(name + ".csv")
	if err != nil {
		return ""
	}
	for line := range strings.Lines(string(data)) {
		if note, ok := strings.CutPrefix(line, "# Prices: "); ok {
			note, _, _ = strings.Cut(strings.TrimSpace(note), ",")
			return note
		}
	}
	return ""
}

// Builtin returns the union of built-in catalogues, such as m6i.
func Builtin(names ...string) (cluster.Catalogue, error) {
	var all cluster.Catalogue
	for _, name := range names {
		data, err := catalogues.ReadFile(name + ".csv")
		if err != nil {
			return nil, fmt.Errorf("catalogue %q is unknown: want one of %s, or a file", name, strings.Join(Names(), ", "))
		}
		c, err := Parse(name, data)
		if err != nil {
			return nil, err
		}
		all = append(all, c...)
	}
	return all, nil
}

// The largest VM in a catalogue file. Sums of such VMs do not overflow.
const (
	mostCPU    = 1_000_000 * cluster.VCPU
	mostMemory = 1 << 50
)

// columns of a catalogue file.
var columns = []string{"model", "vcpu", "memory", "price", "pods"}

// Parse reads a catalogue from CSV with the columns model, vcpu, memory (such as 8 GiB), price
// (dollars for an hour) and pods (the maximum; empty: no limit), in this order. Lines that
// begin with # are comments. Errors name file and line.
func Parse(file string, data []byte) (cluster.Catalogue, error) {
	r := csv.NewReader(bytes.NewReader(bytes.TrimPrefix(data, []byte("\ufeff"))))
	r.Comment, r.TrimLeadingSpace, r.FieldsPerRecord = '#', true, len(columns)
	header, err := r.Read()
	if err != nil {
		return nil, fmt.Errorf("%s: read the header %s: %w", file, strings.Join(columns, ","), err)
	}
	if !slices.Equal(header, columns) {
		return nil, fmt.Errorf("%s: the header is %s: want %s", file, strings.Join(header, ","), strings.Join(columns, ","))
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
		m, err := parseModel(row)
		if err != nil {
			return nil, fmt.Errorf("%s line %d: %w", file, line, err)
		}
		if seen[m.Name] {
			return nil, fmt.Errorf("%s line %d: model %s appears twice", file, line, m.Name)
		}
		seen[m.Name] = true
		c = append(c, m)
	}
	if len(c) == 0 {
		return nil, fmt.Errorf("%s: has no models: want at least one line after the header", file)
	}
	return c, nil
}

func parseModel(row []string) (cluster.Model, error) {
	name := strings.TrimSpace(row[0])
	if name == "" {
		return cluster.Model{}, errors.New("model: want a name")
	}
	cpu, err := parseDecimal(row[1])
	if err != nil || cpu <= 0 || cpu > mostCPU {
		return cluster.Model{}, fmt.Errorf("vcpu %q of %s: want a number above 0, at most a million", row[1], name)
	}
	memory, err := parseMemory(row[2])
	if err != nil {
		return cluster.Model{}, fmt.Errorf("memory %q of %s: %w", row[2], name, err)
	}
	price, err := parseDecimal(strings.TrimPrefix(strings.TrimSpace(row[3]), "$"))
	if err != nil {
		return cluster.Model{}, fmt.Errorf("price %q of %s: want dollars for an hour, such as 0.112", row[3], name)
	}
	m := cluster.Model{Name: name, Size: cluster.Resources{CPU: cpu, Memory: memory}, Nominal: cluster.Resources{CPU: cpu, Memory: memory}, Price: price}
	if text := strings.TrimSpace(row[4]); text != "" {
		if m.Pods, err = strconv.Atoi(text); err != nil || m.Pods < 1 {
			return cluster.Model{}, fmt.Errorf("pods %q of %s: want a number from 1, or nothing for no limit", row[4], name)
		}
	}
	return m, nil
}

// memoryUnits of catalogue files, in bytes.
var memoryUnits = []struct {
	name  string
	bytes int64
}{{"KiB", 1 << 10}, {"MiB", 1 << 20}, {"GiB", 1 << 30}, {"TiB", 1 << 40}}

func parseMemory(text string) (int64, error) {
	for _, unit := range memoryUnits {
		number, ok := strings.CutSuffix(strings.TrimSpace(text), unit.name)
		if !ok {
			continue
		}
		n, err := parseDecimal(number)
		whole, part := n/decimals, n%decimals
		if err != nil || n <= 0 || whole > mostMemory/unit.bytes {
			break
		}
		return whole*unit.bytes + part*(unit.bytes>>10)/decimals<<10, nil
	}
	return 0, errors.New("want a positive number with KiB, MiB, GiB or TiB, such as 8 GiB, at most 1024 TiB")
}

// decimals is 1 in the unit of parseDecimal.
const decimals = 1_000_000_000

// parseDecimal returns a decimal number from 0 to 1e9 in billionths. It refuses more than nine
// decimals.
func parseDecimal(text string) (int64, error) {
	whole, part, _ := strings.Cut(strings.TrimSpace(text), ".")
	if len(part) > 9 || whole == "" {
		return 0, fmt.Errorf("%q: want a number with at most nine decimals", text)
	}
	n, err := strconv.ParseUint(whole, 10, 30)
	if err != nil {
		return 0, fmt.Errorf("%q: want a number from 0 to 1e9", text)
	}
	billionths, err := strconv.ParseUint((part + "000000000")[:9], 10, 31)
	if err != nil {
		return 0, fmt.Errorf("%q: want digits after the point", text)
	}
	return int64(n)*decimals + int64(billionths), nil
}
