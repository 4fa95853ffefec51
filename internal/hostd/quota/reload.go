package quota

import (
	"fmt"
	"reflect"
	"slices"
)

// Reload returns the next policy of a daemon that runs with p and has read file. The daemon
// keeps what it changes only at its start; restart names these keys: "tenants shop: mtu".
// It fails if what the daemon keeps conflicts with the file.
func (p Config) Reload(file Config) (next Config, restart []string, err error) {
	next = file
	next.Tenants, next.Guests = slices.Clone(file.Tenants), slices.Clone(file.Guests)
	keep(&restart, "listen", &next.Listen, p.Listen)
	keep(&restart, "http", &next.HTTP, p.HTTP)
	for _, was := range p.Tenants {
		i := slices.IndexFunc(next.Tenants, func(t Tenant) bool { return t.Name == was.Name })
		if i < 0 {
			restart = append(restart, "tenants "+was.Name)
			next.Tenants = append(next.Tenants, was)
			continue
		}
		t, at := &next.Tenants[i], fmt.Sprintf("tenants %s: ", was.Name)
		keep(&restart, at+"bridge", &t.Bridge, was.Bridge)
		keep(&restart, at+"mtu", &t.MTU, was.MTU)
		keep(&restart, at+"gateways", &t.Gateways, was.Gateways)
		keep(&restart, at+"nat", &t.NAT, was.NAT)
		keep(&restart, at+"ranges", &t.Ranges, was.Ranges)
		keep(&restart, at+"cooldown", &t.Cooldown, was.Cooldown)
		keep(&restart, at+"volumes", &t.Volumes, was.Volumes)
		keep(&restart, at+"networkPolicy", &t.NetworkPolicy, was.NetworkPolicy)
	}
	for _, was := range p.Guests {
		i := slices.IndexFunc(next.Guests, func(g Guest) bool { return g.Name == was.Name })
		if i < 0 {
			continue
		}
		at := fmt.Sprintf("guests %s: ", was.Name)
		keep(&restart, at+"tenant", &next.Guests[i].Tenant, was.Tenant)
		keep(&restart, at+"index", &next.Guests[i].Index, was.Index)
	}
	if len(restart) > 0 {
		_, err = Marshal(next)
	}
	return next, restart, err
}

// keep sets to to what it was, and records the key if that makes a difference.
func keep[T any](restart *[]string, key string, to *T, was T) {
	if !reflect.DeepEqual(*to, was) {
		*restart = append(*restart, key)
	}
	*to = was
}
