package plan

import (
	"os"
	"strings"
	"testing"
)

// Prices of a region are not those of another. The answer names region and date.
func TestRegionOfPrices(t *testing.T) {
	cluster := dumpOf(t, nodesOf("m6i.xlarge", 2), workload{name: "web", replicas: 2, nodes: 2, requests: request("150m", "200Mi")}.pods())
	answer := func(args ...string) string { return strings.Join(strings.Fields(must(t, args...)), " ") }
	if text := answer("--trace", cluster); !strings.Contains(text, "You pay 0.384 $/h (280 $ a month) for 2 nodes.") || !strings.Contains(text, "Prices: AWS price list of 2026-07-20, us-east-1. - Do next") {
		t.Errorf("the answer does not name region and date:\n%s", text)
	}
	abroad := file(t, "abroad.json", strings.ReplaceAll(readFile(t, cluster), "us-east-1", "eu-central-1"))
	zoneOnly := file(t, "zone.json", strings.ReplaceAll(readFile(t, abroad), "topology.kubernetes.io/region", "region"))
	for _, dump := range []string{abroad, zoneOnly} {
		_, err := execute(t.Context(), t, "--trace", dump)
		if err == nil || !strings.Contains(err.Error(), "the nodes are in eu-central-1, and the built-in prices of m6i are of us-east-1: name a CSV file with prices of eu-central-1") {
			t.Errorf("prices of another region: error %v", err)
		}
	}
	if text := answer("--trace", abroad, "--catalogue", offer(t, "price_factor: 1.25")); !strings.Contains(text, "You pay 0.480 $/h") || !strings.Contains(text, "us-east-1, times 1.25.") {
		t.Errorf("with a factor:\n%s", text)
	}
	private := file(t, "private.json", strings.NewReplacer("aws:///us-east-1b/", "", "topology.kubernetes.io/region", "region").Replace(readFile(t, cluster)))
	if text := answer("--trace", private, "--catalogue", file(t, "own.csv", "model,vcpu,memory,price,pods\nm6i.xlarge,4,16 GiB,0.1,\n")); !strings.Contains(text, "You pay 0.200 $/h") {
		t.Errorf("a private cloud with zones:\n%s", text)
	}
	if _, err := execute(t.Context(), t, "--trace", abroad, "--catalogue", offer(t, "price_factor: 0")); err == nil || !strings.Contains(err.Error(), "want a number from 0.01 to 100") {
		t.Errorf("a factor of 0: error %v", err)
	}
}

func readFile(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// What is missing in a dump is asked for, in the answer and for flags that people try.
func TestNodesAreAskedFor(t *testing.T) {
	text := strings.Join(strings.Fields(must(t, "--trace", dumpOf(t, workload{name: "web", replicas: 2, requests: request("150m", "200Mi")}.pods()))), " ")
	if !strings.Contains(text, "! The dump has no nodes, so it is not known what you pay, and the plans are for VMs of bacou: add them with kubectl get nodes,pods,pdb,pv,csinodes,ns -A -o json.") {
		t.Errorf("a dump without nodes:\n%s", text)
	}
	if _, err := execute(t.Context(), t, "--nodes", "nodes.json"); err == nil || !strings.Contains(err.Error(), "--nodes is not a flag: nodes, pods and volumes are in one dump: kubectl get nodes,") {
		t.Errorf("--nodes: error %v", err)
	}
}
