package bridge

import (
	"testing"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
)

// All bridges of a tenant are separate from those of other tenants, also a bridge that
// is added after Ensure.
func TestFurtherBridges(t *testing.T) {
	inHost(t, func(h *host) {
		add := func(name string, addresses ...string) {
			h.check(netlink.LinkAdd(&netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: name}}))
			h.address(name, addresses...)
		}
		add("red-db", "10.4.0.1/16", "fd04::1/64")
		red, blue := red, blue
		red.Further, blue.Further = []string{"red-db"}, []string{"blue-db", "blue-2"}
		h.check(h.ensure([]Network{red, blue}))
		add("blue-db", "10.5.0.1/16", "fd05::1/64")
		add("blue-2", "10.6.0.1/16", "fd06::1/64")
		pod := map[string]netns.NsHandle{
			"red":     h.attach("p1", "red", []string{"10.1.0.2/16", "fd01::2/64"}, "10.1.0.1", "fd01::1"),
			"blue":    h.attach("p2", "blue", []string{"10.2.0.2/16", "fd02::2/64"}, "10.2.0.1", "fd02::1"),
			"red-db":  h.attach("p4", "red-db", []string{"10.4.0.2/16", "fd04::2/64"}, "10.4.0.1", "fd04::1"),
			"blue-db": h.attach("p5", "blue-db", []string{"10.5.0.2/16", "fd05::2/64"}, "10.5.0.1", "fd05::1"),
			"blue-2":  h.attach("p6", "blue-2", []string{"10.6.0.2/16", "fd06::2/64"}, "10.6.0.1", "fd06::1"),
		}
		h.serve()
		for _, ns := range pod {
			h.in(ns, h.serve)
		}
		tests := []struct{ from, to, caller string }{
			{"red", "10.4.0.2", "10.1.0.2"}, // the tenant's own, not translated
			{"red-db", "fd01::2", "fd04::2"},
			{"red-db", "10.1.0.1", "10.4.0.2"},
			{"blue-db", "10.6.0.2", "10.5.0.2"},
			{"blue-2", "fd02::1", "fd06::2"},
			{"red", "10.5.0.2", ""}, // another tenant's
			{"red", "fd06::2", ""},
			{"red-db", "10.2.0.2", ""},
			{"red-db", "fd02::2", ""},
			{"red-db", "10.5.0.2", ""},
			{"red-db", "fd06::2", ""},
			{"blue", "fd04::2", ""},
			{"blue-db", "10.1.0.2", ""},
			{"blue-2", "10.4.0.2", ""},
			{"red-db", "10.2.0.1", ""}, // and its gateways
			{"blue-db", "fd01::1", ""},
		}
		h.wantCalls(pod, tests)
	})
}
