package plan

import (
	"strings"
	"testing"

	"unnest.io/unnest/internal/plan/kubernetes"
)

// Prices are those of a column, or follow from vCPUs and memory. Plans name their catalogues.
func TestPrices(t *testing.T) {
	from := "csv:" + file(t, "pods.csv", "user,pod,container,cpu,memory\nu,p,c,2,4Gi\n")
	own := file(t, "own.csv", "model,vcpu,memory,price,pods,arch,price_spot,price_savings_1y\na,2,8 GiB,0.1,,,0.03,0.07\nb,2,4 GiB,,,arm64,,\n")
	for _, tt := range []struct {
		args []string
		want string
	}{
		{[]string{"--catalogue", own, "--catalogue", offer(t, "unit_prices: {vcpu: 0.02, gib: 0.005}")}, "0.06"},
		{[]string{"--catalogue", own, "--catalogue", offer(t, "unit_prices: {vcpu: 0.05, gib: 0.005}")}, "0.1"},
		{[]string{"--catalogue", own, "--catalogue", offer(t, "price: spot")}, "0.03"},
		{[]string{"--catalogue", own, "--catalogue", offer(t, "price: savings_1y")}, "0.07"},
		{[]string{"--catalogue", "gcp-e2", "--catalogue", offer(t, "price: spot")}, "0.0201"},
		{[]string{"--catalogue", "azure-dpsv5"}, "0.077"},
		{[]string{"--catalogue", "g5", "--catalogue", "c7g"}, "0.0725"},
	} {
		if r := decode(t, must(t, append(tt.args, "--trace", from, "--json")...)); r.Cost.Best != dollarsOf(t, tt.want) || r.Settings.Catalogues[0] != tt.args[1] {
			t.Errorf("%v: best costs %s of %v, want %s", tt.args, r.Cost.Best, r.Settings.Catalogues, tt.want)
		}
	}
	for _, tt := range []struct {
		args []string
		want string
	}{
		{[]string{"--catalogue", own}, `price "" of b`},
		{[]string{"--catalogue", own, "--catalogue", offer(t, "unit_prices: {vcpu: 1}")}, "unit_prices: key gib is missing"},
		{[]string{"--catalogue", own, "--catalogue", offer(t, "unit_prices: {vcpu: x, gib: 1}")}, `unit_prices.vcpu: want dollars for an hour, such as 0.02, got "x"`},
		{[]string{"--catalogue", own, "--catalogue", offer(t, "unit_prices: {vcpu: 0, gib: 0}")}, "unit_prices: want a price above 0 of a vCPU or of a GiB"},
		{[]string{"--catalogue", offer(t, "price: spot")}, "bacou: has no column price_spot: its terms are the price on demand"},
		{[]string{"--catalogue", "g5"}, "all models of the catalogue have GPUs"},
	} {
		if _, err := execute(t.Context(), t, append(tt.args, "--trace", from)...); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%v: error %v, want %q", tt.args, err, tt.want)
		}
	}
	text := words(must(t, "--trace", from, "--catalogue", "m7i", "--catalogue", "m7g", "--catalogue", offer(t, "kube_reserved: eks")))
	for _, want := range []string{"The catalogue has models for amd64 and arm64. The plans assume that every image runs on all of them.", "catalogue m7i, m7g", "prices AWS price list of 2026-07-20", "reserved for the kubelet eks"} {
		if !strings.Contains(text, want) {
			t.Errorf("the text lacks %q:\n%s", want, text)
		}
	}
}

// Spot nodes are planned at spot prices where the catalogue has them. A cluster of another cloud
// is planned on its families.
func TestSpotNodes(t *testing.T) {
	var dump strings.Builder
	if err := (kubernetes.SyntheticCluster{Seed: 1, Nodes: 6}).WriteDump(&dump); err != nil {
		t.Fatal(err)
	}
	text := strings.NewReplacer("m6i.2xlarge", "e2-standard-8", "m6i.4xlarge", "e2-standard-16", "r6i.xlarge", "e2-highmem-4", "g5.xlarge", "e2-standard-4", `"node.kubernetes.io/instance-type":`, `"cloud.google.com/gke-spot": "true", "node.kubernetes.io/instance-type":`).Replace(dump.String())
	c := clusterOf(t, "--trace", "kubectl:"+file(t, "gke.json", text))
	if len(c.Pools) == 0 || c.Catalogues[0] != "gcp-e2" {
		t.Fatalf("%d pools, catalogues %v", len(c.Pools), c.Catalogues)
	}
	for _, p := range c.Pools {
		if !p.Spot || !strings.HasSuffix(p.Name, " spot") {
			t.Errorf("pool %s is not of spot nodes", p.Name)
		}
	}
	demand := clusterOf(t, "--trace", "kubectl:"+file(t, "gke.json", strings.ReplaceAll(text, "gke-spot", "gke-other")))
	if ratio := float64(c.Now) / float64(demand.Now); ratio < .2 || ratio > .4 {
		t.Errorf("spot nodes cost %s, nodes on demand %s", c.Now, demand.Now)
	}
}
