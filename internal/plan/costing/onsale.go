package costing

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"unnest.io/unnest/internal/plan/catalogue"
	"unnest.io/unnest/internal/plan/cluster"
	"unnest.io/unnest/internal/plan/fleet"
	"unnest.io/unnest/internal/plan/summary"
)

// market is what is on sale for a cluster.
type market struct {
	nodes      []cluster.Node    // with the models that they are of
	models     cluster.Catalogue // of nodes and on sale, in their nominal sizes
	catalogues []string
	prices     []string
	remarks    []string
}

// onSale returns what is on sale for nodes: the catalogues of the offer; without any, the families
// of nodes and models; if there are none either, the sizes of the nodes at unit prices.
func onSale(nodes []cluster.Node, o catalogue.Offer) (market, error) {
	named := len(o.Catalogues) > 0
	if !named {
		var names []string
		for _, n := range nodes {
			names = append(names, n.Model)
		}
		o = o.Families(names)
	}
	for _, n := range nodes {
		if err := o.CheckRegion(provider([]cluster.Node{n}), fleet.Region(n)); err != nil {
			return market{}, err
		}
	}
	m := market{nodes: nodes, catalogues: o.Names(), prices: append(o.PriceDates(), unitPrices(o.Prices)...)}
	if len(o.Catalogues) == 0 {
		return m.sized(o)
	}
	if _, err := o.Nominal(); err != nil { // names of models that do not exist
		return m, err
	}
	o.Models = nil
	var err error
	if m.models, err = o.Nominal(); err != nil || !named {
		return m, err
	}
	var n int
	if m.nodes, n = fleet.Identify(nodes, m.models); n > 0 {
		m.remarks = append(m.remarks, fmt.Sprintf("%d nodes without the label node.kubernetes.io/instance-type are taken for the smallest model of their size.", n))
	}
	return m, nil
}

// unitPrices says what a vCPU and a GiB cost, if that is given.
func unitPrices(p catalogue.Prices) []string {
	if p.VCPU+p.GiB == 0 {
		return nil
	}
	return []string{fmt.Sprintf("%s $/h for a vCPU and %s $/h for a GiB", exact(p.VCPU), exact(p.GiB))}
}

func exact(price int64) string {
	text, err := summary.Dollars(price).MarshalJSON()
	if err != nil {
		return fmt.Sprint(price)
	}
	return string(text)
}

// sized adds models of the sizes of the nodes that name none.
func (m market) sized(o catalogue.Offer) (market, error) {
	if o.Prices.VCPU+o.Prices.GiB == 0 {
		return m, unknownModels(m.nodes)
	}
	m.catalogues = []string{"the sizes of the nodes"}
	nodes, all := fleet.Sizes(m.nodes)
	if len(all) == 0 {
		return m, unknownModels(nodes)
	}
	for i, model := range all {
		var err error
		if all[i].Price, err = o.Prices.Of(model.Size); err != nil {
			return m, err
		}
	}
	m.nodes, m.models = nodes, all
	_, err := catalogue.Choose(all, o.Models)
	return m, err
}

// unknownModels returns the error for nodes without prices.
func unknownModels(nodes []cluster.Node) error {
	const fix = "name models with --catalogue FILE"
	names := map[string]bool{}
	for _, n := range nodes {
		if n.Model == "" {
			return fmt.Errorf("node %s has no label node.kubernetes.io/instance-type, so its price is not known: say what a vCPU and a GiB cost for an hour (unit_prices: {vcpu: 0.02, gib: 0.0025} in a YAML file for --catalogue), or %s", n.Name, fix)
		}
		names[n.Model] = true
	}
	return fmt.Errorf("no built-in catalogue has prices of %s, which the nodes are: %s", strings.Join(slices.Sorted(maps.Keys(names)), ", "), fix)
}

// provider returns the cloud of the nodes, such as aws, gce or azure; empty: unknown.
func provider(nodes []cluster.Node) string {
	for _, n := range nodes {
		if name, _, ok := strings.Cut(n.Provider, ":"); ok {
			return name
		}
	}
	return ""
}
