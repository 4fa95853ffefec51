package costing

import (
	"cmp"

	"unnest.io/unnest/internal/plan/catalogue"
	"unnest.io/unnest/internal/plan/cluster"
	"unnest.io/unnest/internal/plan/pack"
	"unnest.io/unnest/internal/plan/summary"
)

// Settings says what the figures depend on. A cluster names its catalogues itself.
func (s Setting) Settings(o catalogue.Offer) summary.Settings {
	p := s.Packing
	settings := summary.Settings{
		Oversize: cmp.Or(string(p.Oversize), string(pack.Drop)), Moving: cmp.Or(string(p.Moving), string(pack.MoveByVM)),
		Emptying: cmp.Or(string(p.Emptying), string(pack.MostWastedFirst)), Requested: cmp.Or(string(p.Requested), string(pack.OfVM)),
		Wasted: cmp.Or(string(p.Wasted), string(pack.OfVM)), Rounds: p.Rounds, Effort: p.Effort,
	}
	if p.Host != (cluster.Resources{}) {
		settings.Host = p.Host.String()
	}
	models := s.Models
	if s.Today == nil {
		o = o.Named()
		settings.Catalogues, settings.Prices, settings.Term, settings.KubeReserved = o.Names(), o.PriceDates(), o.Prices.Term, o.KubeReserved()
	} else {
		models = s.Today.Models
	}
	for _, m := range models {
		settings.Catalogue = append(settings.Catalogue, summary.Model{
			Name: m.Name, VCPU: float64(m.Size.CPU) / cluster.VCPU, GiB: float64(m.Size.Memory) / (1 << 30), Price: summary.Dollars(m.Price), Pods: m.Pods, Arch: m.Arch,
		})
	}
	return settings
}
