package cluster

import (
	"encoding/json"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"testing"

	"unnest/internal/testbed/lab"
)

// Pods ask the address of the Service, whose ports and backend are those of the DNS server.
func TestDNS(t *testing.T) {
	var config struct{ ClusterDNS []string }
	if err := json.Unmarshal([]byte(kubeletConfig(1)), &config); err != nil {
		t.Fatal(err)
	}
	objects := map[string]map[string]any{}
	for _, o := range dnsObjects() {
		objects[o["kind"].(string)] = o
	}
	spec := objects["Service"]["spec"].(map[string]any)
	if !slices.Equal(config.ClusterDNS, []string{spec["clusterIP"].(string)}) {
		t.Errorf("pods ask %v, the Service has the address %v", config.ClusterDNS, spec["clusterIP"])
	}
	if !netip.MustParsePrefix(serviceRange).Contains(netip.MustParseAddr(dnsService)) {
		t.Errorf("%s is not in %s", dnsService, serviceRange)
	}
	slice := objects["EndpointSlice"]
	if !reflect.DeepEqual(slice["ports"], spec["ports"]) {
		t.Errorf("the Service has the ports %v, its backend %v", spec["ports"], slice["ports"])
	}
	backend := slice["endpoints"].([]any)[0].(map[string]any)["addresses"].([]string)
	if text := corefile("/run/coredns.conf"); !slices.Equal(backend, []string{lab.TenantGateway}) || !strings.Contains(text, "bind "+lab.TenantGateway+"\n") {
		t.Errorf("the backend is %v, the server's configuration\n%s", backend, text)
	}
}
