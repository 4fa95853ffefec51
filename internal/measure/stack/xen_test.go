package stack

import (
	"strings"
	"testing"
)

// A domain of Xen is a stack of its own, of level 1, on a host that the run boots or the user names.
func TestXen(t *testing.T) {
	for _, layer := range []Layer{XenPV, XenPVH, XenHVM} {
		s, err := Parse(string(layer))
		if err != nil || !s.Xen() || s.Level() != 1 || s.Remote() || !strings.HasSuffix(s.Describe(), " domain of Xen, no container") {
			t.Errorf("%s: %v, level %d, %q, %v", layer, s, s.Level(), s.Describe(), err)
		}
		for _, c := range []Configuration{
			{Name: "a", Stack: s}, {Name: "a", Stack: s, VCPUs: 2, Memory: 1 << 30},
			{Name: "a", Stack: s, Host: "ssh://root@10.0.0.7", Identity: "/root/key"},
		} {
			if err := c.Validate(); err != nil {
				t.Errorf("%s: %v", c, err)
			}
		}
		for want, c := range map[string]Configuration{
			"leave it out":          {Arch: S390x},
			"needs a VM":            {Start: Booted},
			"needs a container":     {Network: NAT},
			"needs a machine":       {Identity: "/root/key"},
			"does not begin with":   {Host: "http://x"},
			"unknown type of domai": {Domains: []Domain{{Type: "xen"}}},
		} {
			c.Name, c.Stack = "a", s
			if err := c.Validate(); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %v; want %q", c, err, want)
			}
		}
	}
	for text, want := range map[string]string{
		"vm/xen-pv":         "can only be the first",
		"ssh/xen-hvm":       "can only be the first",
		"xen-pv/vm":         "a domain can only be the last",
		"xen-pvh/container": "unknown layer",
		"xen-pv/containerd": "a domain can only be the last",
	} {
		if s, err := Parse(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, %v; want %q", text, s, err, want)
		}
	}
}
