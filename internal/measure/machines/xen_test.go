package machines

import (
	"slices"
	"testing"

	"unnest.io/unnest/internal/measure/benchtest"
	"unnest.io/unnest/internal/measure/machines/guestimage"
	"unnest.io/unnest/internal/measure/stack"
	"unnest.io/unnest/internal/testbed/guest"
	"unnest.io/unnest/internal/testbed/image"
	"unnest.io/unnest/internal/testbed/xen"
)

const (
	sysbenchCases = "  - {suite: sysbench}\n"
	apacheCases   = "  - {name: a, workload: apache, sizes: [1KiB], intensities: [50%], duration: 1s}\n"
)

// The guest with Xen has room for each domain of the file, once, and not for those on hosts of the
// user's.
func TestXenOptions(t *testing.T) {
	for name, test := range map[string]struct {
		configurations, cases string
		domains               int64
		accel                 guest.Accel
		processors            int
	}{
		"stacks": {"  - {name: PV, stack: xen-pv}\n  - {name: PVH, stack: xen-pvh}\n  - {name: VM, stack: vm}\n" +
			"  - {name: R, stack: xen-pv, host: \"ssh://x\"}\n", sysbenchCases, 2, guest.KVM, 4},
		"domains": {"  - {name: A, domains: [{type: xen-pv}]}\n  - {name: B, domains: [{type: xen-pv}, {type: xen-pv}, {type: xen-pvh}]}\n", apacheCases, 3, guest.KVM, 4},
		// Such domains die if the emulated host has more processors.
		"emulated hardware virtualization": {"  - {name: PV, stack: xen-pv}\n  - {name: HVM, stack: xen-hvm}\n", sysbenchCases, 2, guest.TCG, 1},
		"emulated, PV only":                {"  - {name: PV, stack: xen-pv}\n  - {name: PVH, stack: xen-pvh, host: \"ssh://x\"}\n", sysbenchCases, 1, guest.TCG, 4},
	} {
		b := &Set{Spec: benchtest.XenSpec(t, test.configurations, test.cases), Images: guestimage.Images{Xen: image.Image{Digest: "x"}}, Options: Options{Accel: test.accel}}
		o, err := b.xenOptions()
		if want := guest.XenMemory + test.domains*(512<<20+xenOverhead); err != nil || o.Memory != want || o.VCPUs != test.processors || o.Image.Digest != "x" {
			t.Errorf("%s: got %d bytes, %d vCPUs, %v; want %d bytes", name, o.Memory, o.VCPUs, err, want)
		}
		if extras, err := o.Extras(xen.Addresses()[0]); err != nil || !slices.Equal(extras.Addresses, xen.Addresses()) {
			t.Errorf("%s: got %v, %v", name, extras, err)
		}
	}
}

// Each configuration has a domain of its own.
func TestXenMachineKeys(t *testing.T) {
	spec := benchtest.XenSpec(t, "  - {name: A, stack: xen-pv}\n  - {name: B, stack: xen-pv}\n  - {name: C, stack: xen-pv, host: \"ssh://x\"}\n", sysbenchCases)
	seen := map[string]bool{}
	for _, c := range spec.Configurations {
		key, err := machineKey(spec, c)
		if err != nil || seen[key] || key == xenKey+c.Host {
			t.Errorf("%s: %q, %v", c.Name, key, err)
		}
		seen[key] = true
	}
	if k := KindOf(stack.Stack{stack.XenPVH}); k != xen.PVH {
		t.Errorf("got %q", k)
	}
}
