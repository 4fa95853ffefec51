// Package catalogue reads price lists of VMs: its own, which are CSV files in the binary,
// and those of users. It also computes what a model leaves for pods after the
// reservations of the kubelet, the system and DaemonSets.
package catalogue

import (
	"bytes"
	"embed"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"unnest.io/unnest/internal/plan/cluster"
	"unnest.io/unnest/internal/yamldoc"
)

//go:embed *.csv
var catalogues embed.FS

// Names returns the names of the built-in catalogues. The paper's is bacou. The others are
// families of AWS EC2, such as m6i, of Google Cloud, such as gcp-n2, and of Azure, such as
// azure-dsv5, in one region each.
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

// regionOf returns the region of the prices of a built-in catalogue, as nodes name it; empty for the
// paper's and for a file.
func regionOf(name string) string {
	data, err := catalogues.ReadFile(name + ".csv")
	if err != nil || name == Paper {
		return ""
	}
	first, _, _ := strings.Cut(string(data), "\n")
	return strings.ToLower(strings.NewReplacer(" ", "", ".", "").Replace(first[strings.LastIndex(first, ",")+1:]))
}

// providerOf returns the cloud that sells the models of a built-in catalogue, as nodes name it.
func providerOf(name string) string {
	switch {
	case regionOf(name) == "":
		return ""
	case strings.HasPrefix(name, "gcp-"):
		return "gce"
	case strings.HasPrefix(name, "azure-"):
		return "azure"
	}
	return "aws"
}

// Family returns the built-in catalogue that has a model or the family it is named after, such
// as m6i of m6i.metal; empty: none.
func Family(model string) string {
	family, _, _ := strings.Cut(model, ".")
	for _, name := range Names() {
		if name == family && name != Paper {
			return name
		}
	}
	for _, name := range Names() {
		if name == Paper {
			continue
		}
		data, err := catalogues.ReadFile(name + ".csv")
		if err == nil && bytes.Contains(data, []byte("\n"+model+",")) {
			return name
		}
	}
	return ""
}

// Paper is the catalogue of Bacou et al., Table 2.
const Paper = "bacou"

// Builtin returns the union of built-in catalogues, such as m6i.
func Builtin(names ...string) (cluster.Catalogue, error) { return Prices{}.Builtin(names...) }

// Builtin returns the union of built-in catalogues, at these prices.
func (p Prices) Builtin(names ...string) (cluster.Catalogue, error) {
	var all cluster.Catalogue
	for _, name := range names {
		data, err := catalogues.ReadFile(name + ".csv")
		if err != nil {
			return nil, fmt.Errorf("catalogue %q is unknown: want one of %s, or a file", name, strings.Join(Names(), ", "))
		}
		c, err := p.Parse(name, data)
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

// parseMemory returns bytes, in whole KiB.
func parseMemory(text string) (int64, error) {
	n, err := yamldoc.Bytes(text)
	if err != nil || n < mebibyte || n > mostMemory {
		return 0, errors.New("want a positive number with MiB, GiB or TiB, such as 8 GiB, at most 1024 TiB")
	}
	return n >> 10 << 10, nil
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
