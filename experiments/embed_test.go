package experiments

import (
	"slices"
	"strings"
	"testing"
	"time"

	"unnest.io/unnest/internal/measure/experiment"
	"unnest.io/unnest/internal/measure/stack"
	"unnest.io/unnest/internal/measure/stats"
	"unnest.io/unnest/internal/measure/suite"
)

// comes lists the built-in experiments.
var comes = []string{
	"aa", "applications", "applications-architectures", "applications-docker", "applications-docker-kafka", "applications-kafka", "applications-levels", "applications-nested", "applications-nested-kafka", "applications-pod", "applications-pod-docker", "applications-pod-docker-kafka", "applications-pod-kafka", "applications-xen", "applications-xen-kafka", "architectures", "boot", "boot-kernel", "brfusion", "brfusion-docker", "brfusion-latency", "cluster", "collocation", "collocation-baseline", "collocation-pairs", "collocation-quick", "collocation-xen", "collocation-xen-kinds", "harness", "hostlo", "hostlo-connections", "hostlo-docker", "hostlo-quick", "hostlo-span", "levels", "levels-reserved",
	"multilevel-application", "multilevel-application-short", "multilevel-cpu", "multilevel-disk", "multilevel-java", "multilevel-memory", "multilevel-multicore", "multilevel-network",
	"network", "overcommitment", "poll", "quickstart", "restored", "restored-suites", "selftest", "startup", "startup-docker", "xen", "xen-network",
}

func TestOpen(t *testing.T) {
	if !slices.Equal(List(), comes) {
		t.Errorf("List() = %q, want %q", List(), comes)
	}
	for _, name := range List() {
		file, data, err := Open(name)
		study, _, _ := strings.Cut(Command(name), " ")
		if err != nil || !strings.Contains(string(data), "name: "+name+"\n") || file != "experiments/"+study+".yaml" {
			t.Errorf("Open(%q) = %q, %d bytes, %v", name, file, len(data), err)
		}
	}
	_, _, err := Open("quickstar")
	if err == nil || !strings.Contains(err.Error(), strings.Join(comes, ", ")) {
		t.Errorf("Open(quickstar): %v; want an error that lists the experiments", err)
	}
}

func TestCommand(t *testing.T) {
	for name, want := range map[string]string{
		"quickstart": "quickstart", "hostlo": "hostlo", "hostlo-quick": "hostlo --suite quick",
		"applications-pod-kafka": "applications --suite pod-kafka", "applications-pod-docker-kafka": "applications --suite pod-docker-kafka", "multilevel-disk": "multilevel --suite disk",
		"latency": "brfusion --suite latency", "multilevel-cpu-application-short": "multilevel --suite cpu --suite application-short", "multilevel": "", "quickstar": "", "hostlo-": "",
	} {
		if got := Command(name); got != want {
			t.Errorf("Command(%q) = %q, want %q", name, got, want)
		}
	}
}

// Suites that differ in their cases only are one experiment; a null takes a key of the study away.
func TestCompose(t *testing.T) {
	file, data, err := Compose("multilevel", "cpu", "memory")
	if err != nil {
		t.Fatal(err)
	}
	s, err := experiment.Parse(file, data)
	if err != nil {
		t.Fatal(err)
	}
	want := len(parsed(t, "multilevel-cpu", "").Cases) + len(parsed(t, "multilevel-memory", "").Cases)
	if s.Name != "multilevel-cpu-memory" || len(s.Cases) != want || !strings.Contains(s.Title, "Tables 3 to 7") {
		t.Errorf("%q, %q with %d cases, want %d", s.Name, s.Title, len(s.Cases), want)
	}
	if _, data, err := Compose("hostlo", "quick"); err != nil || strings.Contains(string(data), "until") {
		t.Errorf("hostlo --suite quick, %v:\n%s", err, data)
	}
	for _, tt := range []struct {
		arguments string
		want      string
	}{
		{"multilevel", "name one of its suites by --suite: application, "},
		{"multilevel cpu disk", "suites cpu and disk differ in configurations: run them one after another"},
		{"multilevel cpu cpu", "suite cpu is given twice"},
		{"hostlo slow", `no suite "slow": want one of connections, quick`},
		{"quickstart slow", `no suite "slow": it has no suites`},
	} {
		arguments := strings.Fields(tt.arguments)
		if _, _, err := Compose(arguments[0], arguments[1:]...); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v, want %q", tt.arguments, err, tt.want)
		}
	}
}

// parsed parses an experiment like unnest bench.
func parsed(t *testing.T, name string, p suite.Profile) *experiment.Spec {
	t.Helper()
	file, data, err := Open(name)
	if err != nil {
		t.Fatal(err)
	}
	s, err := experiment.ParseProfile(file, data, p)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestAllParse(t *testing.T) {
	for _, name := range List() {
		if s := parsed(t, name, ""); s.Name != name || slices.Contains(Studies(), name) && s.Title != Title(name) || len(s.Cases) == 0 || s.Title == "" || s.Description == "" {
			t.Errorf("%s: named %q with %d cases", name, s.Name, len(s.Cases))
		}
	}
}

// The multi-level studies have the configurations of Table 2 of Lubomski et al.
// and every case of their suite, in both profiles.
func TestMultilevel(t *testing.T) {
	for _, name := range []string{"cpu", "multicore", "memory", "java", "disk"} {
		want := []string{"metal.local", "metal.aufs", "vm.local", "vm.aufs"}
		if name == "disk" {
			want = []string{"metal.local", "metal.aufs", "metal.mnt", "vm.local", "vm.aufs", "vm.mnt"}
		}
		for _, profile := range []suite.Profile{suite.Quick, suite.Paper} {
			s := parsed(t, "multilevel-"+name, profile)
			cases, err := suite.Of(name)
			if err != nil || len(s.Cases) != len(cases) || s.Cases[0].Suite != name || s.Cases[0].Profile != profile {
				t.Errorf("%s: %d cases of %d, profile %q, %v", name, len(s.Cases), len(cases), s.Profile, err)
			}
			if !slices.Equal(configurations(s), want) {
				t.Errorf("%s: configurations %q, want %q", name, configurations(s), want)
			}
		}
	}
}

// The application stack is measured in the 16 configurations of Table 7, and shortly in six of them.
func TestMultilevelApplication(t *testing.T) {
	all := parsed(t, "multilevel-application", suite.Paper)
	if n := len(all.Configurations); n != 16 || len(all.Cases) != 1 || all.Cases[0].Profile != suite.Paper {
		t.Errorf("%d configurations, %d cases of profile %s", n, len(all.Cases), all.Cases[0].Profile)
	}
	short := parsed(t, "multilevel-application-short", "")
	for _, name := range configurations(short) {
		if !slices.Contains(configurations(all), name) {
			t.Errorf("%s is not a configuration of Table 7", name)
		}
	}
	if !slices.Equal(short.Baselines, all.Baselines) || len(short.Configurations) != 6 || short.Repetitions < 3 {
		t.Errorf("the short form has %d configurations and baselines %v", len(short.Configurations), short.Baselines)
	}
}

func configurations(s *experiment.Spec) (names []string) {
	for _, c := range s.Configurations {
		names = append(names, c.Name)
	}
	return names
}

// The levels of the thesis, §2.4, with a quarter of its memory.
func TestLevels(t *testing.T) {
	for name, want := range map[string][]suite.Resources{
		"levels":          {{VCPUs: 4, Memory: 4 << 30}, {VCPUs: 4, Memory: 4 << 30}, {VCPUs: 4, Memory: 4 << 30}},
		"levels-reserved": {{VCPUs: 4, Memory: 4096 << 20}, {VCPUs: 3, Memory: 3584 << 20}, {VCPUs: 2, Memory: 3072 << 20}},
	} {
		s := parsed(t, name, "")
		if len(s.Cases) != 5 || !slices.Equal(configurations(s), []string{"L0", "L1", "L2"}) {
			t.Errorf("%s: %d cases, configurations %q", name, len(s.Cases), configurations(s))
		}
		for i, c := range s.Configurations {
			want[i].Whole = 4 << 30
			got, err := s.Resources(c)
			if err != nil || got != want[i] || c.Level() != i {
				t.Errorf("%s %s: level %d with %+v, %v; want %+v", name, c.Name, c.Level(), got, err, want[i])
			}
			for profile, block := range map[suite.Profile]string{suite.Quick: "=33554432 ", suite.Paper: "=1073741824 "} {
				if script := s.Cases[2].Local.Run(profile, got); !strings.Contains(script, "--memory-block-size"+block) {
					t.Errorf("%s %s: no blocks%sin %q", name, c.Name, block, script)
				}
			}
		}
	}
}

// The two configurations differ only in their names.
func TestAA(t *testing.T) {
	s := parsed(t, "aa", "")
	if got := configurations(s); !slices.Equal(got, []string{"NoCont-a", "NoCont-b"}) || s.Configurations[0].Notation() != s.Configurations[1].Notation() {
		t.Errorf("configurations %+v", s.Configurations)
	}
}

// The studies of restored guests have two guests of each kind, which differ in nothing else.
func TestRestored(t *testing.T) {
	for _, name := range []string{"restored", "restored-suites"} {
		s := parsed(t, name, "")
		want := map[string]stack.Start{"booted-a": stack.Booted, "booted-b": stack.Booted, "restored-a": stack.Restored, "restored-b": stack.Restored}
		for _, c := range s.Configurations {
			if c.Start != want[c.Name] {
				t.Errorf("%s: %s", name, c)
			}
			delete(want, c.Name)
			c.Name, c.Start = s.Configurations[0].Name, s.Configurations[0].Start
			if c.String() != s.Configurations[0].String() {
				t.Errorf("%s: %s differs from %s", name, c, s.Configurations[0])
			}
		}
		if len(want) > 0 || len(s.Warnings()) > 0 {
			t.Errorf("%s: missing %v, warnings %q", name, want, s.Warnings())
		}
	}
}

// The loads of Table 1 of Bacou et al., in the configurations of their Figures 5 to 7 and 11 to
// 15. The rates are the paper's, divided by one factor for each study and kind of server.
func TestApplications(t *testing.T) {
	for name, want := range map[string]struct {
		configurations string
		factor         int // of all requests
		messages       int // factor of Kafka's
	}{
		"applications":                  {"NoCont NAT BrFusion", 50, 200},
		"applications-architectures":    {"x86_64 s390x aarch64", 200, 2000},
		"applications-levels":           {"metal metal.host metal.nat vm vm.host vm.nat", 50, 200},
		"applications-pod":              {"SameNode NAT Overlay Hostlo Hostlo-plain", 100, 0},
		"applications-nested":           {"L0 L0.nat L1 L1.nat L2 L2.nat", 200, 0},
		"applications-xen":              {"PV PVH HVM", 1000, 0},
		"applications-xen-kafka":        {"PV PVH HVM", 0, 10_000},
		"applications-docker":           {"NoCont DockerNAT NAT BrFusion", 50, 0},
		"applications-docker-kafka":     {"NoCont DockerNAT BrFusion", 0, 200},
		"applications-pod-docker":       {"DockerNAT DockerOverlay Overlay Hostlo", 100, 0},
		"applications-pod-docker-kafka": {"DockerNAT DockerOverlay Hostlo", 0, 1000},
		"applications-kafka":            {"NoCont NAT BrFusion", 0, 200},
		"applications-pod-kafka":        {"SameNode NAT Overlay Hostlo Hostlo-plain", 0, 1000},
	} {
		s := parsed(t, name, "")
		if got := strings.Join(configurations(s), " "); got != want.configurations {
			t.Errorf("%s: configurations %s, want %s", name, got, want.configurations)
		}
		var cases []string
		for _, c := range s.Cases {
			cases = append(cases, c.Name)
			if c.Name == "kafka" {
				if c.Params.Rate*want.messages != 120_000 || c.Params.Size != 0 {
					t.Errorf("%s: %s has %+v, want the paper's size and a rate of 120,000/%d messages/s", name, c.Name, c.Params, want.messages)
				}
				continue
			}
			if c.Params.Rate > 0 && c.Params.Rate*want.factor != 10_000 || c.Params.Connections != 0 || c.Params.Threads != 0 {
				t.Errorf("%s: %s has %+v, want the paper's connections and a rate of 10,000/%d requests/s", name, c.Name, c.Params, want.factor)
			}
		}
		known := []string{"memcached", "memcached_rate", "nginx", "kafka"}
		switch name {
		case "applications-kafka", "applications-docker-kafka", "applications-pod-kafka", "applications-pod-docker-kafka", "applications-xen-kafka":
			known = known[3:]
		case "applications-docker", "applications-nested", "applications-nested-kafka", "applications-pod", "applications-pod-docker", "applications-xen":
			known = known[:3]
		}
		if !slices.Equal(cases, known) || len(s.Warnings()) > 0 {
			t.Errorf("%s: cases %q, warnings %q", name, cases, s.Warnings())
		}
	}
}

// The small form of all servers takes less than 15 minutes, with the blocks that it may add and a minute
// in which the guests start.
func TestApplicationsIsShort(t *testing.T) {
	s := parsed(t, "applications", "")
	took := s.Estimate() + time.Minute
	var block time.Duration
	for _, c := range s.Cases {
		if c.Blocks == 0 {
			block += c.Wall + time.Second
		}
	}
	took += time.Duration(s.Limit-s.Repetitions) * time.Duration(len(s.Configurations)) * block
	if took > 15*time.Minute {
		t.Errorf("it takes %s", took)
	}
}

// The configurations of Figure 10 of Bacou et al. and the paper's own reflector, all
// between the two containers of a pod. The studies of the paper have the size that §5.3.2 discusses.
func TestHostlo(t *testing.T) {
	for name, want := range map[string]struct{ cases, size int }{"hostlo": {12, 1024}, "hostlo-quick": {6, 1024}, "hostlo-connections": {2, 200}} {
		s := parsed(t, name, "")
		if want := []string{"SameNode", "NAT", "Overlay", "Hostlo", "Hostlo-plain"}; !slices.Equal(configurations(s), want) {
			t.Errorf("%s: configurations %q", name, configurations(s))
		}
		for _, c := range s.Configurations {
			if c.Drive != stack.Pod || c.Split() != (c.Name != "SameNode") {
				t.Errorf("%s: %s", name, c)
			}
		}
		has := slices.ContainsFunc(s.Cases, func(c experiment.Case) bool { return c.Size == want.size })
		if len(s.Cases) != want.cases || !has || s.Baselines[0] != "SameNode" {
			t.Errorf("%s: %d cases, %d B among them: %v, baselines %q", name, len(s.Cases), want.size, has, s.Baselines)
		}
		if len(s.Warnings()) > 0 {
			t.Errorf("%s: %q", name, s.Warnings())
		}
	}
}

// The suites with Docker compare the paper's proposal with its baselines by Docker itself, in as many blocks as a verdict needs.
func TestSuitesWithDocker(t *testing.T) {
	for name, pod := range map[string]bool{
		"brfusion-docker": false, "applications-docker": false, "applications-docker-kafka": false, "startup-docker": false,
		"hostlo-docker": true, "applications-pod-docker": true, "applications-pod-docker-kafka": true,
	} {
		s := parsed(t, name, "")
		want := []string{"DockerNAT"}
		if pod {
			want = []string{"DockerOverlay", "DockerNAT"}
		}
		for _, docker := range want {
			i := slices.Index(configurations(s), docker)
			known, _ := stack.Named(docker)
			if i < 0 || !slices.Contains(s.Baselines, docker) || s.Configurations[i].Network != known.Network || s.Configurations[i].Stack.String() != "vm/docker" {
				t.Errorf("%s: no baseline %s: %v, %v", name, docker, s.Configurations, s.Baselines)
			}
		}
		for _, c := range s.Configurations {
			if (c.Drive == stack.Pod) != pod {
				t.Errorf("%s: %s", name, c)
			}
		}
		if s.Repetitions < stats.MinRepetitions || s.Limit > 0 || len(s.Warnings()) > 0 {
			t.Errorf("%s: %d blocks, at most %d, warnings %q", name, s.Repetitions, s.Limit, s.Warnings())
		}
		for _, c := range s.Cases {
			if c.Blocks > 0 {
				t.Errorf("%s: %s has %d blocks", name, c.Name, c.Blocks)
			}
		}
	}
}

// The studies of collocated domains have the types, documents and intensities of the paper. The short
// form has some of each, and what each of its pairs is compared with.
func TestCollocation(t *testing.T) {
	for name, want := range map[string]struct{ configurations, cases, domains int }{
		"collocation": {12, 70, 6}, "collocation-baseline": {15, 7, 15}, "collocation-pairs": {9, 2, 6}, "collocation-quick": {14, 4, 14},
	} {
		s := parsed(t, name, "")
		domains := map[string]bool{}
		for _, c := range s.Configurations {
			for _, domain := range c.DomainNames() {
				domains[domain] = true
			}
		}
		if len(s.Configurations) != want.configurations || len(s.Cases) != want.cases || len(domains) != want.domains || len(s.Warnings()) > 0 {
			t.Errorf("%s: %d configurations, %d cases, %d domains, warnings %q", name, len(s.Configurations), len(s.Cases), len(domains), s.Warnings())
		}
		for _, c := range s.Configurations {
			for i, d := range c.Domains {
				alone := slices.ContainsFunc(s.Configurations, func(o stack.Configuration) bool { return len(o.Domains) == 1 && o.Domains[0].Type == d.Type })
				if !alone || s.Guest.VCPUs != 2 || c.Weights()[i] != 256 && c.Weights()[i] != 1024 {
					t.Errorf("%s: %s: domain %d alone: %v, weight %d", name, c.Name, i, alone, c.Weights()[i])
				}
			}
		}
	}
}
