package catalogue

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"unnest.io/unnest/internal/plan/cluster"
)

func mustBuiltin(t testing.TB, names ...string) cluster.Catalogue {
	t.Helper()
	c, err := Builtin(names...)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// Bacou et al., Table 2: sizes, sizes relative to 24xlarge as printed, prices.
func TestTable2(t *testing.T) {
	c := mustBuiltin(t, "bacou")
	want := []struct {
		name   string
		vcpu   int64
		memory int64 // GiB
		share  float64
		price  int64 // thousandths of a dollar
	}{
		{"large", 2, 8, 0.0208, 112}, {"xlarge", 4, 16, 0.0417, 224}, {"2xlarge", 8, 32, 0.0833, 448},
		{"4xlarge", 16, 64, 0.1667, 896}, {"12xlarge", 48, 192, 0.5, 2688}, {"24xlarge", 96, 384, 1, 5376},
	}
	if len(c) != len(want) {
		t.Fatalf("%d models, want %d", len(c), len(want))
	}
	for i, w := range want {
		size := cluster.Resources{CPU: w.vcpu * cluster.VCPU, Memory: w.memory << 30}
		if diff := cmp.Diff(cluster.Model{Name: w.name, Size: size, Nominal: size, Price: w.price * cluster.Dollar / 1000, Pods: 0}, c[i]); diff != "" {
			t.Errorf("model %d differs (-want +got):\n%s", i, diff)
		}
		if got := float64(w.vcpu)/96 + float64(w.memory)/384; got < 2*w.share-1e-4 || got > 2*w.share+1e-4 {
			t.Errorf("%s has size %.4f, want twice %.4f", w.name, got, w.share)
		}
	}
}

// Every built-in catalogue names its source, and its models are sound: prices within a family
// follow the size, spot costs less, and the numbers of pods are those of AWS.
func TestFamilies(t *testing.T) {
	for _, name := range Names() {
		if name == Paper {
			continue
		}
		if PriceDate(name) == "" {
			t.Errorf("catalogue %s does not say where its prices are from", name)
		}
		if want := map[string]string{"aws": "us-east-1", "gce": "us-central1", "azure": "eastus"}[providerOf(name)]; regionOf(name) != want || want == "" {
			t.Errorf("catalogue %s is of %s in %q", name, providerOf(name), regionOf(name))
		}
		c := mustBuiltin(t, name)
		for _, m := range c {
			perVCPU := float64(m.Price) / float64(m.Size.CPU)
			gib := float64(m.Size.Memory) / float64(m.Size.CPU) * cluster.VCPU / (1 << 30)
			if m.GPUs == 0 && (perVCPU < .002 || perVCPU > .09 || gib < .25 || gib > 8) || m.Pods == 0 || m.Spot >= m.Price || m.Spot < 0 {
				t.Errorf("model %+v of %s", m, name)
			}
			if Family(m.Name) != name {
				t.Errorf("%s is of the family %s, want %s", m.Name, Family(m.Name), name)
			}
			if arm := strings.Contains(name, "g") && strings.ContainsAny(name[:1], "cmrt") && strings.HasSuffix(name, "g") || strings.HasPrefix(name, "azure-") && strings.Contains(name, "ps"); (m.Arch == "arm64") != arm {
				t.Errorf("%s has the architecture %q", m.Name, m.Arch)
			}
			if gpu := strings.HasPrefix(name, "g4") || name == "g5" || name == "g6" || name[0] == 'p'; (m.GPUs > 0) != gpu {
				t.Errorf("%s has %d GPUs", m.Name, m.GPUs)
			}
		}
	}
	want := map[string]struct {
		models  int
		perVCPU int64 // memory
		price   int64 // of a vCPU, millionths of a dollar
		last    string
		pods    int
	}{
		"m5": {8, 4, 48_000, "m5.24xlarge", 737}, "m6i": {9, 4, 48_000, "m6i.32xlarge", 737}, "m7i": {9, 4, 50_400, "m7i.48xlarge", 737}, "c6i": {9, 2, 42_500, "c6i.32xlarge", 737},
		"r6i": {9, 8, 63_000, "r6i.32xlarge", 737}, "m7g": {8, 4, 40_800, "m7g.16xlarge", 737}, "m6a": {10, 4, 43_200, "m6a.48xlarge", 737}, "azure-dsv5": {8, 4, 48_000, "Standard_D96s_v5", 110},
	}
	for name, w := range want {
		c := mustBuiltin(t, name)
		last := c[len(c)-1]
		if len(c) != w.models || last.Name != w.last || last.Pods != w.pods {
			t.Errorf("%s has %d models, and ends with %s of %d pods; want %d, %s, %d", name, len(c), last.Name, last.Pods, w.models, w.last, w.pods)
		}
		for _, m := range c {
			if vcpus := m.Size.CPU / cluster.VCPU; m.Size.Memory != vcpus*w.perVCPU<<30 || m.Price != vcpus*w.price*1000 {
				t.Errorf("%s has %s for %d, want %d GiB and %d millionths of a dollar for a vCPU", m.Name, m.Size, m.Price, w.perVCPU, w.price)
			}
		}
	}
	if m := mustBuiltin(t, "gcp-n1")[1]; m.Name != "n1-standard-2" || m.Size.Memory != 15<<29 || m.Price != 95_000_000 || m.Spot != 20_000_000 {
		t.Errorf("model %+v", m)
	}
	for model, family := range map[string]string{"m6i.metal": "m6i", "large": "", "z9.large": "", "n2-standard-4": "gcp-n2", "Standard_D4s_v5": "azure-dsv5", "bacou": ""} {
		if got := Family(model); got != family {
			t.Errorf("family of %s is %q, want %q", model, got, family)
		}
	}
}

// Columns after the first five say more about models. Prices may be of a term, or of vCPUs and GiB.
func TestColumns(t *testing.T) {
	const text = "model,vcpu,memory,price,pods,arch,gpus,offered,price_spot,price_savings_1y\na,2,8 GiB,0.1,,arm64,,7.5 GiB,0.03,0.07\nb,2,8 GiB,,,,2,,,\n"
	size := cluster.Resources{CPU: 2 * cluster.VCPU, Memory: 8 << 30}
	a := cluster.Model{Name: "a", Size: cluster.Resources{CPU: size.CPU, Memory: 15 << 29}, Nominal: size, Price: cluster.Dollar / 10, Spot: 3 * cluster.Dollar / 100, Arch: "arm64"}
	b := cluster.Model{Name: "b", Size: size, Nominal: size, Price: 6 * cluster.Dollar / 100, GPUs: 2}
	saved := a
	saved.Price = 7 * cluster.Dollar / 100
	for _, tt := range []struct {
		prices Prices
		want   cluster.Catalogue
	}{
		{Prices{VCPU: cluster.Dollar / 100, GiB: cluster.Dollar / 200}, cluster.Catalogue{a, b}},
		{Prices{Term: "savings_1y"}, cluster.Catalogue{saved}},
	} {
		got, err := tt.prices.Parse("f", []byte(text))
		if diff := cmp.Diff(tt.want, got); err != nil || diff != "" {
			t.Errorf("%+v: %v (-want +got):\n%s", tt.prices, err, diff)
		}
	}
	if left := WithoutGPUs(cluster.Catalogue{a, b}); len(left) != 1 || left[0].Name != "a" {
		t.Errorf("without GPUs: %v", left)
	}
	const header = "model,vcpu,memory,price,pods"
	for _, tt := range []struct {
		prices     Prices
		text, want string
	}{
		{Prices{}, text, `f line 3: price "" of b`},
		{Prices{Term: "reserved"}, text, "has no column price_reserved: its terms are the price on demand, spot, savings_1y"},
		{Prices{Term: "x"}, header + ",price_x\na,1,1 GiB,1,,\n", "no model has a price in the column price_x"},
		{Prices{}, header + ",colour\n", `the column "colour" of the header is unknown`},
		{Prices{}, header + ",arch,arch\n", `the column "arch" of the header is unknown or appears twice`},
		{Prices{}, header + ",arch\na,1,1 GiB,1,,mips\n", `arch "mips" of a: want amd64 or arm64`},
		{Prices{}, header + ",gpus\na,1,1 GiB,1,,-1\n", `gpus "-1" of a`},
		{Prices{}, header + ",offered\na,1,1 GiB,1,,2 GiB\n", `offered "2 GiB" of a`},
		{Prices{}, header + ",price_spot\na,1,1 GiB,1,,x\n", `price_spot "x" of a`},
		{Prices{VCPU: 1e9 * cluster.Dollar}, header + "\na,9,1 GiB,,\n", "costs more than 1e9 $/h"},
	} {
		if _, err := tt.prices.Parse("f", []byte(tt.text)); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%+v %q: error %v, want %q", tt.prices, tt.text, err, tt.want)
		}
	}
}

func TestParseCatalogue(t *testing.T) {
	got, err := Prices{}.Parse("f", []byte("# mine\nmodel,vcpu,memory,price,pods\na,0.5,1.7 GiB,$0.01,\nb, 2 , 8 GiB ,1,8\n"))
	if err != nil {
		t.Fatal(err)
	}
	a := cluster.Resources{CPU: cluster.VCPU / 2, Memory: 1_782_579 << 10} // of 1,782,579.2 KiB
	b := cluster.Resources{CPU: 2 * cluster.VCPU, Memory: 8 << 30}
	if diff := cmp.Diff(cluster.Catalogue{{Name: "a", Size: a, Nominal: a, Price: cluster.Dollar / 100, Pods: 0}, {Name: "b", Size: b, Nominal: b, Price: cluster.Dollar, Pods: 8}}, got); diff != "" {
		t.Errorf("catalogue differs (-want +got):\n%s", diff)
	}
	const header = "model,vcpu,memory,price,pods\n"
	for _, tt := range []struct{ text, want string }{
		{"", "f: read the header"},
		{"model,cpu,memory,price,pods\n", "want model,vcpu,memory,price,pods"},
		{header, "f: has no models"},
		{header + "a,1,1 GiB,1\n", "wrong number of fields"},
		{header + ",1,1 GiB,1,\n", "f line 2: model: want a name"},
		{header + "a,0,1 GiB,1,\n", `f line 2: vcpu "0" of a`},
		{header + "a,2000000,1 GiB,1,\n", `f line 2: vcpu "2000000" of a`},
		{header + "a,1,8,1,\n", `f line 2: memory "8" of a: want a positive number with MiB`},
		{header + "a,1,1 GB,1,\n", `f line 2: memory "1 GB" of a: want a positive number with MiB`},
		{header + "a,1,2000 TiB,1,\n", `f line 2: memory "2000 TiB" of a`},
		{header + "a,1,1 GiB,-1,\n", `f line 2: price "-1" of a`},
		{header + "a,1,1 GiB,0.0000000001,\n", `f line 2: price "0.0000000001" of a`},
		{header + "a,1,1 GiB,1,0\n", `f line 2: pods "0" of a`},
		{header + "a,1,1 GiB,1,\na,1,1 GiB,1,\n", "f line 3: model a appears twice"},
	} {
		if _, err := (Prices{}).Parse("f", []byte(tt.text)); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%q: error %v, want one with %q", tt.text, err, tt.want)
		}
	}
	if _, err := Builtin("m5", "z9"); err == nil || !strings.Contains(err.Error(), `"z9" is unknown: want one of azure-dpsv5, azure-dsv5`) {
		t.Errorf("unknown catalogue: error %v", err)
	}
}

func FuzzParseCatalogue(f *testing.F) {
	f.Add([]byte("model,vcpu,memory,price,pods\na,0.5,1.5 GiB,$0.01,\nb, 2 ,512MiB,1,8\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		c, err := Prices{}.Parse("f", data)
		if err == nil && len(c) == 0 {
			t.Error("no model and no error")
		}
		for _, m := range c {
			if m.Size.CPU <= 0 || m.Size.Memory < 0 || m.Price < 0 || m.Pods < 0 {
				t.Errorf("model %+v", m)
			}
		}
	})
}

// EKS gives an m5.large 1930 mCPU and keeps 255 + 11·29 MiB; GKE's formula keeps
// 5,611.52 MiB of 64 GiB. AKS keeps 50 + 20·29 MB. All evict below 100 MiB.
func TestAllocatable(t *testing.T) {
	daemons := Reserve{Kube: ReserveEKS, System: cluster.Resources{CPU: cluster.VCPU / 10, Memory: 100 * mebibyte}, DaemonSets: cluster.Resources{CPU: cluster.VCPU / 5, Memory: 200 * mebibyte}, DaemonPods: 3}
	tests := []struct {
		name    string
		model   string
		reserve Reserve
		cpu     int64 // thousandths
		memory  int64 // MiB, rounded down
		pods    int
	}{
		{"nothing", "m5.large", Reserve{}, 2000, 8192, 29},
		{"EKS", "m5.large", Reserve{Kube: ReserveEKS}, 1930, 8192 - 574 - 100, 29},
		{"EKS, 4xlarge", "m5.4xlarge", Reserve{Kube: ReserveEKS}, 16000 - 110, 65536 - 255 - 11*234 - 100, 234},
		{"GKE, 4xlarge", "m5.4xlarge", Reserve{Kube: ReserveGKE}, 16000 - 110, 65536 - 5612 - 100, 234},
		{"AKS", "m5.large", Reserve{Kube: ReserveAKS}, 1900, 8192 - 601 - 100, 29},
		{"AKS, 4xlarge", "m5.4xlarge", Reserve{Kube: ReserveAKS}, 16000 - 260, 65536 - 4511 - 100, 234},
		{"DaemonSets", "m5.large", daemons, 1630, 8192 - 574 - 100 - 300, 26},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			full := mustBuiltin(t, "m5")
			c, err := Allocatable(full, tt.reserve)
			if err != nil {
				t.Fatal(err)
			}
			for i, m := range c {
				if m.Name != tt.model {
					continue
				}
				if got := [3]int64{m.Size.CPU * 1000 / cluster.VCPU, m.Size.Memory / mebibyte, int64(m.Pods)}; got != [3]int64{tt.cpu, tt.memory, int64(tt.pods)} {
					t.Errorf("%s has %v, want %d mCPU, %d MiB, %d pods", m.Name, got, tt.cpu, tt.memory, tt.pods)
				}
				if m.Taken() != full[i].Size {
					t.Errorf("%s takes %s of its host, want its size", m.Name, m.Taken())
				}
			}
		})
	}
	if _, err := Allocatable(mustBuiltin(t, "m5"), Reserve{System: cluster.Resources{CPU: 0, Memory: 1 << 40}}); err == nil || !strings.Contains(err.Error(), "reserve less") {
		t.Errorf("everything reserved: error %v", err)
	}
	if _, err := Allocatable(mustBuiltin(t, "m5"), Reserve{Kube: "zks"}); err == nil || !strings.Contains(err.Error(), `"zks" is unknown`) {
		t.Errorf("unknown formula: error %v", err)
	}
}
