package catalogue

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"unnest/internal/plan/cluster"
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

// Families have models that double, at prices that follow the vCPUs, as AWS has
// them, and the numbers of pods that AWS gives.
func TestFamilies(t *testing.T) {
	want := map[string]struct {
		models   int
		perVCPU  int64 // memory
		price    int64 // of a vCPU, millionths of a dollar
		last     string
		lastPods int
	}{
		"m5": {8, 4, 48_000, "m5.24xlarge", 737}, "m6i": {9, 4, 48_000, "m6i.32xlarge", 737},
		"m7i": {9, 4, 50_400, "m7i.48xlarge", 737}, "c6i": {9, 2, 42_500, "c6i.32xlarge", 737},
		"r6i": {9, 8, 63_000, "r6i.32xlarge", 737},
	}
	for _, name := range Names() {
		if name == "bacou" {
			continue
		}
		w, ok := want[name]
		c := mustBuiltin(t, name)
		if !ok || len(c) != w.models {
			t.Errorf("catalogue %s has %d models, want %d", name, len(c), w.models)
			continue
		}
		for _, m := range c {
			if m.Size.Memory/w.perVCPU<<0 != m.Size.CPU/cluster.VCPU<<30 {
				t.Errorf("%s has %s, want %d GiB for a vCPU", m.Name, m.Size, w.perVCPU)
			}
			if m.Price != m.Size.CPU/cluster.VCPU*w.price*1000 {
				t.Errorf("%s costs %d, want %d millionths of a dollar for a vCPU", m.Name, m.Price, w.price)
			}
		}
		if c[0].Pods != 29 || c[len(c)-1].Name != w.last || c[len(c)-1].Pods != w.lastPods {
			t.Errorf("%s has %d pods at first, and ends with %s of %d", name, c[0].Pods, c[len(c)-1].Name, c[len(c)-1].Pods)
		}
	}
}

func TestParseCatalogue(t *testing.T) {
	got, err := Parse("f", []byte("# mine\nmodel,vcpu,memory,price,pods\na,0.5,1.5 GiB,$0.01,\nb, 2 ,512MiB,1,8\n"))
	if err != nil {
		t.Fatal(err)
	}
	a, b := cluster.Resources{CPU: cluster.VCPU / 2, Memory: 3 << 29}, cluster.Resources{CPU: 2 * cluster.VCPU, Memory: 512 << 20}
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
		{header + "a,1,1 GB,1,\n", `f line 2: memory "1 GB" of a: want a positive number with KiB`},
		{header + "a,1,2000 TiB,1,\n", `f line 2: memory "2000 TiB" of a`},
		{header + "a,1,1 GiB,-1,\n", `f line 2: price "-1" of a`},
		{header + "a,1,1 GiB,0.0000000001,\n", `f line 2: price "0.0000000001" of a`},
		{header + "a,1,1 GiB,1,0\n", `f line 2: pods "0" of a`},
		{header + "a,1,1 GiB,1,\na,1,1 GiB,1,\n", "f line 3: model a appears twice"},
	} {
		if _, err := Parse("f", []byte(tt.text)); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%q: error %v, want one with %q", tt.text, err, tt.want)
		}
	}
	if _, err := Builtin("m5", "z9"); err == nil || !strings.Contains(err.Error(), `"z9" is unknown: want one of bacou, c6i`) {
		t.Errorf("unknown catalogue: error %v", err)
	}
}

func FuzzParseCatalogue(f *testing.F) {
	f.Add([]byte("model,vcpu,memory,price,pods\na,0.5,1.5 GiB,$0.01,\nb, 2 ,512MiB,1,8\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		c, err := Parse("f", data)
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
// 5,611.52 MiB of 64 GiB. Both evict below 100 MiB.
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
	if _, err := Allocatable(mustBuiltin(t, "m5"), Reserve{Kube: "aks"}); err == nil || !strings.Contains(err.Error(), `"aks" is unknown`) {
		t.Errorf("unknown formula: error %v", err)
	}
}
