package catalogue

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/goccy/go-yaml/ast"
	"k8s.io/apimachinery/pkg/api/resource"

	"unnest.io/unnest/internal/plan/cluster"
	"unnest.io/unnest/internal/yamldoc"
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
	in := map[string]string{} // model -> catalogue
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
		for _, m := range c {
			if other, has := in[m.Name]; has && other != t.Name {
				return nil, fmt.Errorf("model %s is in the catalogues %s and %s: name one of them, or name the model otherwise in a CSV file", m.Name, other, t.Name)
			}
			in[m.Name] = t.Name
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
		if of := regionOf(name); o.PriceFactor == 0 && region != "" && of != "" && providerOf(name) == provider && of != region {
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

// maxOffer is the most bytes of a file with an offer.
const maxOffer = 64 << 10

// ParseOffer parses an offer in YAML: see docs/plan.md. Its catalogues have no CSV yet. Errors name
// lines and keys.
func ParseOffer(file string, data []byte) (Offer, error) {
	doc, root, err := yamldoc.Parse(file, data, maxOffer)
	if err != nil {
		return Offer{}, err
	}
	f, o := offerFile{doc}, Offer{BillingMinimum: BillingMinimum}
	var names []string
	f.Mapping("", root, map[string]yamldoc.Key{
		"catalogues":      yamldoc.Scalars(doc, &names, yamldoc.Text),
		"models":          doc.NotEmpty(yamldoc.Scalars(doc, &o.Models, yamldoc.Text)),
		"price":           yamldoc.Scalar(doc, &o.Prices.Term, yamldoc.Text),
		"price_factor":    yamldoc.Scalar(doc, &o.PriceFactor, factor),
		"unit_prices":     f.unitPrices(&o.Prices),
		"kube_reserved":   yamldoc.Scalar(doc, &o.Kube, reservation),
		"system_reserved": f.resources(&o.System, nil),
		"daemonsets":      f.resources(&o.DaemonSets, &o.DaemonPods),
		"host":            f.resources(&o.Host, nil),
		"billing_minimum": yamldoc.Scalar(doc, &o.BillingMinimum, yamldoc.Parser("a time above 0, such as 1m", time.ParseDuration, func(d time.Duration) bool { return d > 0 })),
	})
	o.OwnDaemons = doc.Has("daemonsets")
	for _, name := range names {
		o.Catalogues = append(o.Catalogues, Table{Name: name})
	}
	return o, doc.Err()
}

type offerFile struct{ *yamldoc.Document }

func factor(text string) (int64, error) {
	n, err := parseDecimal(text)
	if err != nil || n < decimals/100 || n > 100*decimals {
		return 0, fmt.Errorf("want a number from 0.01 to 100, such as 1.1, got %q", text)
	}
	return n, nil
}

func reservation(word string) (string, error) {
	if !slices.Contains([]string{"none", string(ReserveGKE), string(ReserveEKS), string(ReserveAKS)}, word) {
		return "", fmt.Errorf("want one of none, gke, eks, aks, got %q", word)
	}
	return word, nil
}

func (f offerFile) unitPrices(to *Prices) yamldoc.Key {
	price := func(text string) (int64, error) {
		p, err := parsePrice(text)
		if err != nil {
			return 0, fmt.Errorf("want dollars for an hour, such as 0.02, got %q", text)
		}
		return p, nil
	}
	return func(path string, n ast.Node) {
		f.Mapping(path, n, map[string]yamldoc.Key{"vcpu": yamldoc.Scalar(f.Document, &to.VCPU, price), "gib": yamldoc.Scalar(f.Document, &to.GiB, price)})
		if f.Require(path, "vcpu", "gib") && !f.Failed() && to.VCPU+to.GiB == 0 {
			f.Fail(path, "want a price above 0 of a vCPU or of a GiB")
		}
	}
}

// resources decodes vCPUs and memory in the notation of Kubernetes, and a number of pods unless it
// is nil.
func (f offerFile) resources(to *cluster.Resources, pods *int) yamldoc.Key {
	keys := map[string]yamldoc.Key{
		"vcpu":   yamldoc.Scalar(f.Document, &to.CPU, quantity("1M", "vCPUs such as 4 or 500m", func(q resource.Quantity) int64 { return q.ScaledValue(resource.Nano) })),
		"memory": yamldoc.Scalar(f.Document, &to.Memory, quantity("1Pi", "bytes such as 16Gi", func(q resource.Quantity) int64 { return q.Value() })),
	}
	want := []string{"vcpu", "memory"}
	if pods != nil {
		keys["pods"] = yamldoc.Scalar(f.Document, pods, yamldoc.Parser("a whole number from 0", strconv.Atoi, func(n int) bool { return n >= 0 }))
		want = append(want, "pods")
	}
	return func(path string, n ast.Node) {
		f.Mapping(path, n, keys)
		f.Require(path, want...)
	}
}

func quantity(most, want string, value func(resource.Quantity) int64) func(string) (int64, error) {
	return func(text string) (int64, error) {
		q, err := resource.ParseQuantity(strings.Replace(text, "iB", "i", 1))
		if err != nil || q.Sign() < 0 || q.Cmp(resource.MustParse(most)) > 0 {
			return 0, errors.New("want " + want + ", got " + strconv.Quote(text))
		}
		return value(q), nil
	}
}
