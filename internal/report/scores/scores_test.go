package scores

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"unnest.io/unnest/internal/measure/result"
)

func TestScoredSuites(t *testing.T) {
	local := func(name string) result.Case { return result.Case{Suite: "s", Name: name, Group: name} }
	sized := func(group string, size int) result.Case {
		return result.Case{Suite: "network", Name: fmt.Sprintf("%s/%d", group, size), Group: group, Size: size}
	}
	conf := func(profile string, names ...string) []result.Configuration {
		var all []result.Configuration
		for _, name := range names {
			all = append(all, result.Configuration{Name: name, Options: map[string]string{"profile": profile}})
		}
		return all
	}
	tests := []struct {
		name           string
		configurations []result.Configuration
		cases          []result.Case
		want           string
	}{
		{"cases of a suite", conf("quick", "a", "b"), []result.Case{local("x"), local("y")}, "s: x y"},
		{"one case", conf("quick", "a", "b"), []result.Case{local("x")}, ""},
		{"one configuration", conf("quick", "a"), []result.Case{local("x"), local("y")}, ""},
		{"loads of another study", conf("", "NoCont", "NAT"), []result.Case{sized("udp_rr", 64), sized("tcp_stream", 64)}, ""},
		{"loads in the paper's configurations", conf("", "vm.remote", "vm.aufs.nat"), []result.Case{sized("udp_rr", 64), sized("tcp_stream", 64)}, "network: udp_rr/64 tcp_stream/64"},
		{"swept loads", conf("", "vm.remote", "vm.aufs.nat"), []result.Case{sized("udp_rr", 64), sized("udp_rr", 256), sized("tcp_stream", 64)}, ""},
		{"two suites", conf("quick", "a", "b"), []result.Case{local("x"), {Suite: "t", Name: "z"}, local("y")}, "s: x y"},
		{"no configurations", nil, []result.Case{local("x"), local("y")}, ""},
	}
	for _, tt := range tests {
		var got []string
		for _, cases := range Suites(result.Run{Configurations: tt.configurations, Cases: tt.cases}) {
			line := cases[0].Suite + ":"
			for _, c := range cases {
				line += " " + c.Name
			}
			got = append(got, line)
		}
		if strings.Join(got, "; ") != tt.want {
			t.Errorf("%s: %q, want %q", tt.name, got, tt.want)
		}
	}
}

func TestPairs(t *testing.T) {
	conf := func(name, network, storage string) result.Configuration {
		return result.Configuration{Name: name, Stack: strings.SplitN(name, ".", 2)[0] + "/containerd", Options: map[string]string{"network": network, "storage": storage, "drive": "remote"}}
	}
	run := result.Run{Configurations: []result.Configuration{
		conf("metal.aufs.nat", "nat", "overlay"), conf("metal.aufs.host", "host", "overlay"), conf("metal.mnt.nat", "nat", "volume"),
		conf("vm.mnt.host", "host", "volume"), conf("vm.aufs.nat", "nat", "overlay"), {Name: "metal.remote", Stack: "metal"},
	}}
	tests := []struct {
		of   int
		want []string
	}{
		{0, []string{"metal.nat: metal.aufs.nat metal.mnt.nat"}},
		{1, []string{"metal.aufs: metal.aufs.nat metal.aufs.host"}},
	}
	for _, tt := range tests {
		var got []string
		for _, c := range run.Configurations {
			if p, ok := alternatives[tt.of].partner(run.Configurations, c); ok {
				got = append(got, alternatives[tt.of].category(c.Name, p.Name)+": "+c.Name+" "+p.Name)
			}
		}
		if diff := cmp.Diff(tt.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", alternatives[tt.of].option, diff)
		}
	}
	if got := alternatives[0].category("layered", "mounted"); got != "layered, mounted" {
		t.Errorf("category of names with nothing in common: %q", got)
	}
}
