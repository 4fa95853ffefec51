package catalogue

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/goccy/go-yaml/ast"
	"k8s.io/apimachinery/pkg/api/resource"

	"unnest.io/unnest/internal/plan/cluster"
	"unnest.io/unnest/internal/yamldoc"
)

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
		q, err := resource.ParseQuantity(text)
		if err != nil || q.Sign() < 0 || q.Cmp(resource.MustParse(most)) > 0 {
			return 0, errors.New("want " + want + ", got " + strconv.Quote(text))
		}
		return value(q), nil
	}
}
