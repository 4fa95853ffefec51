package catalogue

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"unnest.io/unnest/internal/plan/cluster"
)

const everything = `
catalogues: [m6i, own.csv]
models: [m6i.large]
price: spot
unit_prices: {vcpu: 0.02, gib: $0.0025}
kube_reserved: eks
system_reserved: {vcpu: 100m, memory: 200Mi}
daemonsets: {vcpu: 0.3, memory: 500Mi, pods: 4}
host: {vcpu: 96, memory: 384GiB}
billing_minimum: 10s
`

func TestParseOffer(t *testing.T) {
	got, err := ParseOffer("offer.yaml", []byte(everything))
	if err != nil {
		t.Fatal(err)
	}
	want := Offer{
		Catalogues: []Table{{Name: "m6i"}, {Name: "own.csv"}}, Models: []string{"m6i.large"}, Prices: Prices{Term: "spot", VCPU: 20_000_000, GiB: 2_500_000}, Kube: "eks",
		System:     cluster.Resources{CPU: cluster.VCPU / 10, Memory: 200 << 20},
		DaemonSets: cluster.Resources{CPU: 3 * cluster.VCPU / 10, Memory: 500 << 20}, DaemonPods: 4, OwnDaemons: true,
		Host: cluster.Resources{CPU: 96 * cluster.VCPU, Memory: 384 << 30}, BillingMinimum: 10 * time.Second,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("offer (-want +got):\n%s", diff)
	}
	for _, tt := range []struct{ text, want string }{
		{"modles: [a]", "offer.yaml:1: modles: unknown key: did you mean models?"},
		{"models: []", "offer.yaml:1: models: the list is empty"},
		{"kube_reserved: aws", `kube_reserved: want one of none, gke, eks, aks, got "aws"`},
		{"unit_prices: {vcpu: 1}", "unit_prices: key gib is missing"},
		{"unit_prices: {vcpu: 0, gib: 0}", "want a price above 0"},
		{"unit_prices: {vcpu: -1, gib: 1}", `unit_prices.vcpu: want dollars for an hour, such as 0.02, got "-1"`},
		{"host: {vcpu: 4}", "host: key memory is missing"},
		{"host: {vcpu: x, memory: 4Gi}", `host.vcpu: want vCPUs such as 4 or 500m, got "x"`},
		{"host: {vcpu: 4, memory: 2Pi}", `host.memory: want bytes such as 16Gi, got "2Pi"`},
		{"daemonsets: {vcpu: 1, memory: 1Gi}", "daemonsets: key pods is missing"},
		{"daemonsets: {vcpu: 1, memory: 1Gi, pods: -1}", "want a whole number from 0"},
		{"billing_minimum: 0s", "want a time above 0, such as 1m"},
	} {
		if _, err := ParseOffer("offer.yaml", []byte(tt.text)); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: error %v, want %q", tt.text, err, tt.want)
		}
	}
}

// Without catalogues, an offer has the families of its models, else the paper's models.
func TestNamed(t *testing.T) {
	for _, tt := range []struct {
		offer Offer
		want  string
	}{
		{Offer{}, Paper},
		{Offer{Models: []string{"m6i.large", "r6i.large", "m6i.xlarge"}}, "m6i,r6i"},
		{Offer{Models: []string{"large"}}, Paper},
		{Offer{Models: []string{"m6i.large"}, Catalogues: []Table{{Name: "c6i"}}}, "c6i"},
	} {
		if got := strings.Join(tt.offer.Named().Names(), ","); got != tt.want {
			t.Errorf("%+v: %s, want %s", tt.offer, got, tt.want)
		}
	}
}

// A model is on sale once.
func TestNominalTwice(t *testing.T) {
	own := Table{"own.csv", []byte("model,vcpu,memory,price,pods\nm6i.large,2,8 GiB,0.05,\n")}
	if _, err := (Offer{Catalogues: []Table{{Name: "m6i"}, own}}).Nominal(); err == nil || !strings.Contains(err.Error(), "model m6i.large is in the catalogues m6i and own.csv") {
		t.Errorf("error %v", err)
	}
	if _, err := (Offer{Catalogues: []Table{{Name: "c6i"}, own}}).Nominal(); err != nil {
		t.Error(err)
	}
}

func FuzzOffer(f *testing.F) {
	f.Add([]byte(everything))
	f.Fuzz(func(t *testing.T, data []byte) {
		o, err := ParseOffer("offer.yaml", data)
		if err != nil {
			return
		}
		if o.BillingMinimum <= 0 || o.System.CPU < 0 || o.DaemonSets.Memory < 0 || o.DaemonPods < 0 || o.Host.CPU < 0 || o.Prices.VCPU < 0 {
			t.Errorf("%q: %+v", data, o)
		}
	})
}
