package quota_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"unnest.io/unnest/internal/hostd/quota"
)

const running = `
listen: 10.200.0.1:7443
tenants:
  - {name: a, bridge: br-a, gateways: [10.1.0.1/16], ranges: [{subnet: 10.1.0.0/16}]}
  - {name: b, bridge: br-b, ranges: [{subnet: 10.2.0.0/16}]}
guests:
  - {name: node1, tenant: a, index: 1, qmp: /q1}
  - {name: node2, tenant: b, index: 2, qmp: /q2}
`

// What can change while the daemon runs is that of the file, the rest stays, and its keys
// are named.
func TestReload(t *testing.T) {
	for _, tt := range []struct {
		name, old, new string
		restart        []string
		changed        func(quota.Config) bool
	}{
		{"nothing", "", "", nil, func(p quota.Config) bool { return len(p.Guests) == 2 }},
		{"a guest is added", "guests:\n", "guests:\n  - {name: node3, tenant: a, index: 3, qmp: /q3}\n", nil,
			func(p quota.Config) bool { return p.Guests[0].Name == "node3" && len(p.Guests) == 3 }},
		{"a guest is removed", "  - {name: node1, tenant: a, index: 1, qmp: /q1}\n", "", nil,
			func(p quota.Config) bool { return len(p.Guests) == 1 }},
		{"a guest's VMM and pool", "qmp: /q1", "qmp: /new, pool: 9", nil,
			func(p quota.Config) bool { return p.Guests[0].QMP == "/new" && p.Guests[0].Pool == 9 }},
		{"a guest's index", "index: 1", "index: 7", []string{"guests node1: index"},
			func(p quota.Config) bool { return p.Guests[0].Index == 1 }},
		{"a guest's tenant", "tenant: a, index: 1", "tenant: b, index: 1", []string{"guests node1: tenant"},
			func(p quota.Config) bool { return p.Guests[0].Tenant == "a" }},
		{"limits and bridges", "bridge: br-b", "bridge: br-b, bridges: [br-x], limits: {nics: 3}", nil,
			func(p quota.Config) bool {
				return p.Tenants[1].Limits.NICs == 3 && p.Tenants[1].Bridges[0] == "br-x"
			}},
		{"queues", "bridge: br-b", "bridge: br-b, queues: 4", nil, func(p quota.Config) bool { return p.Tenants[1].Queues == 4 }},
		{"polling", "bridge: br-b", "bridge: br-b, vhostPoll: 200us", nil, func(p quota.Config) bool { return p.Tenants[1].VHostPoll == 200*time.Microsecond }},
		{"a tenant is added", "guests:\n", "  - {name: c, bridge: br-c}\nguests:\n", nil,
			func(p quota.Config) bool { return p.Tenants[2].Name == "c" }},
		{"a tenant with its guest is removed", "  - {name: b, bridge: br-b, ranges: [{subnet: 10.2.0.0/16}]}\nguests:\n  - {name: node1, tenant: a, index: 1, qmp: /q1}\n  - {name: node2, tenant: b, index: 2, qmp: /q2}\n", "", []string{"tenants b"},
			func(p quota.Config) bool { return len(p.Tenants) == 2 && len(p.Guests) == 0 }},
		{"network", "br-b, ranges: [{subnet: 10.2.0.0/16}]", "br-c, mtu: 9000, cooldown: 1s, volumes: /v, gateways: [10.3.0.1/16], nat: true", []string{
			"tenants b: bridge", "tenants b: mtu", "tenants b: gateways", "tenants b: nat", "tenants b: ranges", "tenants b: cooldown", "tenants b: volumes",
		}, func(p quota.Config) bool {
			return p.Tenants[1].Bridge == "br-b" && p.Tenants[1].MTU == 1500 && !p.Tenants[1].NAT
		}},
		{"addresses of the daemon", "listen: 10.200.0.1:7443", "listen: 10.200.0.1:1\nhttp: 127.0.0.1:1", []string{"listen", "http"},
			func(p quota.Config) bool { return p.Listen.Port() == 7443 && !p.HTTP.IsValid() }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			was := mustParse(t, running)
			next, restart, err := was.Reload(mustParse(t, strings.Replace(running, tt.old, tt.new, 1)))
			if err != nil || !slices.Equal(restart, tt.restart) || !tt.changed(next) {
				t.Errorf("got %+v, restart for %q, error %v; want restart for %q", next, restart, err, tt.restart)
			}
			if again, restart, err := next.Reload(next); err != nil || restart != nil || len(again.Tenants) != len(next.Tenants) {
				t.Errorf("the same again: restart for %q, error %v", restart, err)
			}
		})
	}
}

// A file that is valid, but not together with what the daemon keeps, is refused.
func TestReloadConflict(t *testing.T) {
	file := strings.Replace(running, "  - {name: b, bridge: br-b, ", "  - {name: c, bridge: br-b, ", 1)
	file = strings.Replace(file, "tenant: b", "tenant: c", 1)
	_, restart, err := mustParse(t, running).Reload(mustParse(t, file))
	if err == nil || !strings.Contains(err.Error(), `"br-b" is already`) || len(restart) == 0 {
		t.Errorf("got %v, restart for %q", err, restart)
	}
}
