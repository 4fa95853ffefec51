package plan

import (
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
	byDefault := families(opts.Models)
	if len(byDefault) == 0 {
		byDefault = []string{"bacou"}
	}
	all, err := models(opts, byDefault...)
	if err != nil {
		return nil, err
	}
	reserve, err := reservation(opts, catalogue.ReserveNothing)
	if err != nil {
		return nil, err
	}
	return catalogue.Allocatable(all, reserve)
}

// families returns the built-in catalogues that models such as m6i.large are named after.
func families(models []string) (names []string) {
	for _, m := range models {
		family, _, ok := strings.Cut(m, ".")
		if ok && slices.Contains(catalogue.Names(), family) && !slices.Contains(names, family) {
			names = append(names, family)
		}
	}
	return names
}

// models returns the models on sale in their nominal sizes. Unless options name catalogues, they
// are those of the default.
func models(opts Options, byDefault ...string) (all cluster.Catalogue, err error) {
	names := opts.Catalogues
	if len(names) == 0 {
		names = byDefault
	}
	for _, name := range names {
		c, err := oneCatalogue(name)
		if err != nil {
			return nil, err
		}
		all = append(all, c...)
	}
	return choose(all, opts.Models)
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
func oneCatalogue(name string) (cluster.Catalogue, error) {
	if !slices.Contains(catalogue.Names(), name) {
		data, err := os.ReadFile(name)
		if err == nil {
			return catalogue.Parse(name, data)
		}
		if !os.IsNotExist(err) {
			return nil, fmt.Errorf("catalogue: %w", err)
		}
	}
	return catalogue.Builtin(name)
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
