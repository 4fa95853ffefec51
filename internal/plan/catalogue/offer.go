package catalogue

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"unnest.io/unnest/internal/plan/cluster"
)

// Offer is the VMs on sale: of which catalogues, at which prices, and what of each VM is not for
// pods. The zero value is the paper's.
type Offer struct {
	Catalogues     []Table  // none: see Named
	Models         []string // of the catalogues; none: all
	Prices         Prices
	Kube           string            // none, gke, eks or aks; empty: the default of who asks
	System         cluster.Resources // system-reserved
	DaemonSets     cluster.Resources // requests of the pods that run on every VM, if OwnDaemons
	DaemonPods     int               // their number
	OwnDaemons     bool              // DaemonSets are given, in place of those of a cluster
	PriceFactor    int64             // by which built-in prices are multiplied, for another region, in billionths; 0: they are for their region only
	Host           cluster.Resources // of a physical host; zero: no limit
	BillingMinimum time.Duration     // shortest time that a VM is billed for
}

// BillingMinimum is how long AWS bills a Linux VM for at least.
const BillingMinimum = time.Minute

// Table is a catalogue: a built-in one by its name, or a CSV file.
type Table struct {
	Name string
	CSV  []byte // nil: built in
}

// Names returns the names of the catalogues.
func (o Offer) Names() (names []string) {
	for _, t := range o.Catalogues {
		names = append(names, t.Name)
	}
	return names
}

// Named returns the offer with catalogues: without any, the families of its models, else the
// paper's.
func (o Offer) Named() Offer {
	if len(o.Catalogues) > 0 {
		return o
	}
	if o = o.Families(nil); len(o.Catalogues) > 0 {
		return o
	}
	o.Catalogues = []Table{{Name: Paper}}
	return o
}

// Families returns the offer with the built-in catalogues of its models and of others, such as
// m6i.large.
func (o Offer) Families(others []string) Offer {
	o.Catalogues = nil
	for _, model := range slices.Concat(o.Models, others) {
		if family := Family(model); family != "" && !slices.Contains(o.Names(), family) {
			o.Catalogues = append(o.Catalogues, Table{Name: family})
		}
	}
	return o
}

// Nominal returns the models of the catalogues in their nominal sizes.
func (o Offer) Nominal() (all cluster.Catalogue, err error) {
	for _, t := range o.Catalogues {
		var c cluster.Catalogue
		if t.CSV != nil {
			c, err = o.Prices.Parse(t.Name, t.CSV)
		} else {
			c, err = o.Prices.Builtin(t.Name)
			c = o.scaled(c)
		}
		if err != nil {
			return nil, err
		}
		all = append(all, c...)
	}
	return Choose(all, o.Models)
}

// scaled returns models at prices of another region.
func (o Offer) scaled(c cluster.Catalogue) cluster.Catalogue {
	for i := range c {
		if o.PriceFactor > 0 {
			c[i].Price = int64(float64(c[i].Price)*float64(o.PriceFactor)/decimals + .5)
			c[i].Spot = int64(float64(c[i].Spot)*float64(o.PriceFactor)/decimals + .5)
		}
	}
	return c
}

// CheckRegion returns an error if a built-in catalogue of the provider has prices of another region
// than a node's, and no factor says what they are there.
func (o Offer) CheckRegion(provider, region string) error {
	for _, name := range o.Names() {
		if of := regionOf(name); o.PriceFactor == 0 && region != "" && providerOf(name) == provider && of != region {
			return fmt.Errorf("the nodes are in %s, and the built-in prices of %s are of %s: name a CSV file with prices of %s with --catalogue, or a YAML file that says what to multiply them by, such as price_factor: 1.1 (1 takes them as they are)", region, name, of, region)
		}
	}
	return nil
}

// Allocatable returns the models for pods, with what they leave for pods.
func (o Offer) Allocatable() (cluster.Catalogue, error) {
	all, err := o.Named().Nominal()
	if err != nil {
		return nil, err
	}
	if all = WithoutGPUs(all); len(all) == 0 {
		return nil, errors.New("all models of the catalogue have GPUs, on which no pods are planned: name another catalogue as well")
	}
	return Allocatable(all, o.Reserve(ReserveNothing))
}

// Reserve returns what is not for pods. Unless the offer names the formula of the kubelet, it is
// the default.
func (o Offer) Reserve(byDefault Reservation) Reserve {
	r := Reserve{Kube: byDefault, System: o.System, DaemonSets: o.DaemonSets, DaemonPods: o.DaemonPods}
	switch o.Kube {
	case "":
	case "none":
		r.Kube = ReserveNothing
	default:
		r.Kube = Reservation(o.Kube)
	}
	return r
}

// PriceDates says where the prices of its built-in catalogues are from.
func (o Offer) PriceDates() (notes []string) {
	for _, name := range o.Names() {
		note := PriceDate(name)
		if note == "" {
			continue
		}
		if region := regionOf(name); region != "" {
			note += ", " + region
		}
		if o.PriceFactor > 0 {
			note += fmt.Sprintf(", times %g", float64(o.PriceFactor)/decimals)
		}
		if !slices.Contains(notes, note) {
			notes = append(notes, note)
		}
	}
	return notes
}

// KubeReserved returns the word for the formula of the kubelet.
func (o Offer) KubeReserved() string { return cmp.Or(o.Kube, "none") }

// Choose keeps the named models; no names keep all.
func Choose(c cluster.Catalogue, names []string) (cluster.Catalogue, error) {
	if len(names) == 0 {
		return c, nil
	}
	var kept cluster.Catalogue
	for _, name := range names {
		at := slices.IndexFunc(c, func(m cluster.Model) bool { return m.Name == name })
		if at < 0 {
			var known []string
			for _, m := range c {
				known = append(known, m.Name)
			}
			return nil, fmt.Errorf("model %q is not in the catalogue: want one of %s", name, strings.Join(known, ", "))
		}
		kept = append(kept, c[at])
	}
	return kept, nil
}
