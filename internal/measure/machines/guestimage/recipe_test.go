package guestimage

import (
	"slices"
	"strings"
	"testing"

	"unnest.io/unnest/internal/measure/benchtest"
	"unnest.io/unnest/internal/measure/experiment"
	"unnest.io/unnest/internal/measure/stack"
	"unnest.io/unnest/internal/measure/workload"
	"unnest.io/unnest/internal/testbed/image"
)

const twoApplications = `name: two
suite: applications
configurations: [{name: NoCont, stack: vm}, {name: NAT, stack: vm/containerd, network: nat}]
cases: [{name: memcached, workload: memcached, duration: 1s}, {name: nginx, workload: nginx, duration: 1s, options: {rate: 10}}]
`

// The containers of guests and of machines over SSH have the programs of the cases, and the load
// generator if clients run there. Other studies, and those without such containers, share the usual image.
func TestApplicationImages(t *testing.T) {
	overSSH := strings.Replace(twoApplications, "vm/containerd, network: nat", "ssh/docker, network: nat, host: 'ssh://h'", 1)
	for _, text := range []string{twoApplications, strings.Replace(overSSH, "{name: NoCont, stack: vm}, ", "", 1)} {
		if got, want := contained(benchtest.Parse(t, text)), []string{"/usr/bin/memcached", "/usr/sbin/nginx"}; !slices.Equal(got, want) {
			t.Errorf("got %q, want %q", got, want)
		}
	}
	for name, want := range map[string][]string{
		"applications-pod":       {"/usr/bin/memcached", "/usr/sbin/nginx", workload.Generator},
		"applications-pod-kafka": {"/usr/lib/jvm/java-17-openjdk-amd64/bin/java", workload.Generator},
	} {
		if got := contained(benchtest.Open(t, name)); !slices.Equal(got, want) {
			t.Errorf("%s: got %q, want %q", name, got, want)
		}
	}
	for _, others := range []*experiment.Spec{benchtest.Open(t, "quickstart"), benchtest.Parse(t, strings.Replace(twoApplications, "vm/containerd", "metal/containerd", 1))} {
		if got := contained(others); got != nil {
			t.Errorf("%s: got %q", others.Name, got)
		}
	}
	if a, b := New(benchtest.Open(t, "quickstart"), "").Recipe, image.DefaultRecipe(); !slices.Equal(a.Image, b.Image) {
		t.Errorf("quickstart: its containers have %q, want %q", a.Image, b.Image)
	}
}

// The image of domains has Apache, and drivers of emulated hardware only where a domain has that.
func TestDomainImages(t *testing.T) {
	r := New(benchtest.Parse(t, benchtest.Mixes), "").Recipe
	if !slices.Contains(r.Packages, "apache2-bin") || !slices.Contains(r.Modules, "e1000") {
		t.Errorf("recipe %+v", r)
	}
	r = New(benchtest.Parse(t, strings.Replace(benchtest.Mixes, "type: hvm", "type: pvmcon", 1)), "").Recipe
	if slices.Contains(r.Modules, "e1000") || !slices.Contains(r.Image, "/usr/sbin/apache2") {
		t.Errorf("recipe without an HVM, with a container in a VM: %+v", r)
	}
}

// A configuration has the image of its release, the others that of the default.
func TestImageOfRelease(t *testing.T) {
	i := New(benchtest.Parse(t, twoApplications), "/bin")
	i.Inner, i.Others[other{release: stack.Trixie}] = image.Image{Digest: "12"}, image.Image{Digest: "13"}
	for release, want := range map[stack.Release]string{"": "12", stack.Bookworm: "12", stack.Trixie: "13"} {
		if got := i.Of(stack.Configuration{Release: release}).Digest; got != want {
			t.Errorf("release %q: image %s, want %s", release, got, want)
		}
	}
}

// A guest has the packages of its engine. One with Docker has the release of its packages.
func TestImageOfEngine(t *testing.T) {
	i := New(benchtest.Parse(t, twoApplications), "/bin")
	i.Inner, i.Others[other{engine: stack.Docker}] = image.Image{Digest: "containerd"}, image.Image{Digest: "docker"}
	for engine, want := range map[stack.Layer]string{stack.Containerd: "containerd", stack.Docker: "docker", stack.Podman: ""} {
		c := stack.Configuration{Stack: stack.Stack{stack.VM, engine}}
		if got := i.Of(c).Digest; got != want {
			t.Errorf("engine %s: image %q, want %q", engine, got, want)
		}
		if named := slices.ContainsFunc(enginePackages(i.otherOf(c)), func(p string) bool { return strings.HasPrefix(p, string(engine)) }); named != (engine != stack.Containerd) {
			t.Errorf("engine %s: packages %q", engine, enginePackages(i.otherOf(c)))
		}
	}
	if packages := enginePackages(other{stack.Trixie, stack.Docker}); !slices.Contains(packages, "docker-cli") {
		t.Errorf("Docker of Debian 13: %q", packages)
	}
}
