package cluster

import (
	"encoding/json"
	"reflect"
	"slices"
	"strings"
	"testing"
)

// Pods ask the addresses of the Service, whose ports and backends are those of the DNS server.
func TestDNS(t *testing.T) {
	for names, want := range map[string]struct{ services, hosts []string }{
		"":        {[]string{"10.96.0.10"}, []string{"10.201.0.1"}},
		IPv4:      {[]string{"10.96.0.10"}, []string{"10.201.0.1"}},
		IPv6:      {[]string{"fd00:10:96::a"}, []string{"fd00:10:201::1"}},
		DualStack: {[]string{"10.96.0.10", "fd00:10:96::a"}, []string{"10.201.0.1", "fd00:10:201::1"}},
	} {
		families := familiesOf(names)
		var config struct{ ClusterDNS []string }
		if err := json.Unmarshal([]byte(kubeletConfig(1, families)), &config); err != nil {
			t.Fatal(err)
		}
		var spec map[string]any
		var backends []string
		for _, o := range dnsObjects(families) {
			switch o["kind"] {
			case "Service":
				spec = o["spec"].(map[string]any)
			case "EndpointSlice":
				if !reflect.DeepEqual(o["ports"], spec["ports"]) {
					t.Errorf("%s: the Service has the ports %v, its backend %v", names, spec["ports"], o["ports"])
				}
				address := o["endpoints"].([]any)[0].(map[string]any)["addresses"].([]string)[0]
				if isIPv6 := strings.Contains(address, ":"); isIPv6 != (o["addressType"] == "IPv6") {
					t.Errorf("%s: the address %s has the type %s", names, address, o["addressType"])
				}
				backends = append(backends, address)
			}
		}
		if !slices.Equal(config.ClusterDNS, want.services) || spec["clusterIP"] != want.services[0] || !reflect.DeepEqual(spec["clusterIPs"], want.services) {
			t.Errorf("%s: pods ask %v, the Service has the addresses %v, want %v", names, config.ClusterDNS, spec["clusterIPs"], want.services)
		}
		if text := corefile(families, "/run/coredns.conf"); !slices.Equal(backends, want.hosts) || !strings.Contains(text, "bind "+strings.Join(want.hosts, " ")+"\n") {
			t.Errorf("%s: the backends are %v, want %v; the server's configuration is\n%s", names, backends, want.hosts, text)
		}
		for _, f := range families {
			if !f.services.Contains(f.dns()) || !f.services.Contains(f.api()) {
				t.Errorf("%s and %s are not in %s", f.dns(), f.api(), f.services)
			}
		}
	}
}
