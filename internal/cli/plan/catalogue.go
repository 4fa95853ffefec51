package plan

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"

	"unnest/internal/cli/usage"
	"unnest/internal/plan/catalogue"
	"unnest/internal/plan/cluster"
)

// loadCatalogue returns the models on sale, with what is allocatable to pods.
func loadCatalogue(opts Options) (cluster.Catalogue, error) {
	opts.Catalogues = catalogueNames(opts)
	all, err := models(opts)
	if err != nil {
		return nil, err
	}
	if all = catalogue.WithoutGPUs(all); len(all) == 0 {
		return nil, errors.New("all models of the catalogue have GPUs, on which no pods are planned: name another catalogue as well")
	}
	reserve, err := reservation(opts, catalogue.ReserveNothing)
	if err != nil {
		return nil, err
	}
	return catalogue.Allocatable(all, reserve)
}

// families returns the built-in catalogues of models such as m6i.large.
func families(models []string) (names []string) {
	for _, m := range models {
		if family := catalogue.Family(m); family != "" && !slices.Contains(names, family) {
			names = append(names, family)
		}
	}
	return names
}

// models returns the models of the catalogues that options name, in their nominal sizes.
func models(opts Options) (all cluster.Catalogue, err error) {
	prices, err := unitPrices(opts)
	if err != nil {
		return nil, err
	}
	for _, name := range opts.Catalogues {
		c, err := oneCatalogue(prices, name)
		if err != nil {
			return nil, err
		}
		all = append(all, c...)
	}
	return choose(all, opts.Models)
}

// unitPrices returns the prices of models without one.
func unitPrices(opts Options) (prices catalogue.Prices, err error) {
	prices.Term = opts.Term
	if opts.UnitPrices != "" {
		if prices.VCPU, prices.GiB, err = catalogue.ParsePrices(opts.UnitPrices); err != nil {
			return prices, usage.Errorf("--unit-prices %w", err)
		}
	}
	return prices, nil
}

// priceDates says where the prices of built-in catalogues are from.
func priceDates(names []string) (notes []string) {
	for _, name := range names {
		if note := catalogue.PriceDate(name); note != "" && !slices.Contains(notes, note) {
			notes = append(notes, note)
		}
	}
	return notes
}

// catalogueNames returns the catalogues of the options.
func catalogueNames(opts Options) []string {
	if len(opts.Catalogues) > 0 {
		return opts.Catalogues
	}
	if byDefault := families(opts.Models); len(byDefault) > 0 {
		return byDefault
	}
	return []string{catalogue.Paper}
}

// reservation returns what the options reserve on each VM. Unless they name the formula of the
// kubelet, it is the default.
func reservation(opts Options, byDefault catalogue.Reservation) (reserve catalogue.Reserve, err error) {
	reserve.Kube = byDefault
	switch opts.KubeReserved {
	case "":
	case "none":
		reserve.Kube = catalogue.ReserveNothing
	default:
		reserve.Kube = catalogue.Reservation(opts.KubeReserved)
	}
	if opts.SystemReserved != "" {
		if reserve.System, _, err = parseResources("system-reserved", opts.SystemReserved, false); err != nil {
			return reserve, err
		}
	}
	if opts.Daemons != "" {
		reserve.DaemonSets, reserve.DaemonPods, err = parseResources("daemonsets", opts.Daemons, true)
	}
	return reserve, err
}

// oneCatalogue returns the built-in catalogue of that name, or reads the file.
func oneCatalogue(prices catalogue.Prices, name string) (cluster.Catalogue, error) {
	if !slices.Contains(catalogue.Names(), name) {
		data, err := os.ReadFile(name)
		if err == nil {
			return prices.Parse(name, data)
		}
		if !os.IsNotExist(err) {
			return nil, fmt.Errorf("catalogue: %w", err)
		}
	}
	return prices.Builtin(name)
}

// choose keeps the named models; no names keep all.
func choose(c cluster.Catalogue, names []string) (cluster.Catalogue, error) {
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

// parseResources reads VCPU,MEMORY or VCPU,MEMORY,PODS in the notation of Kubernetes.
func parseResources(flag, text string, pods bool) (r cluster.Resources, n int, err error) {
	want, form := 2, "VCPU,MEMORY, such as 4,16Gi"
	if pods {
		want, form = 3, "VCPU,MEMORY,PODS, such as 0.3,500Mi,4"
	}
	wrong := usage.Errorf("--%s %s: want %s", flag, text, form)
	parts := strings.Split(text, ",")
	if len(parts) != want {
		return r, 0, wrong
	}
	cpu, errCPU := resource.ParseQuantity(parts[0])
	memory, errMemory := resource.ParseQuantity(parts[1])
	if errCPU != nil || errMemory != nil || cpu.Sign() < 0 || memory.Sign() < 0 {
		return r, 0, wrong
	}
	if cpu.Cmp(resource.MustParse("1M")) > 0 || memory.Cmp(resource.MustParse("1Pi")) > 0 {
		return r, 0, wrong
	}
	if pods {
		if n, err = strconv.Atoi(parts[2]); err != nil || n < 0 {
			return r, 0, wrong
		}
	}
	return cluster.Resources{CPU: cpu.ScaledValue(resource.Nano), Memory: memory.Value()}, n, nil
}
