package stack

import (
	"slices"
	"strings"
	"testing"
)

func TestDomains(t *testing.T) {
	for _, tt := range []struct {
		domains  []Domain
		names    string
		weights  []int
		notation string
		words    string
	}{
		{[]Domain{{Type: HVM}}, "hvm1", []int{256}, "vm:domains=hvm1", "HVM"},
		{[]Domain{{Type: CON}}, "con1", []int{256}, "metal/containerd:domains=con1", "CON"},
		{[]Domain{{Type: CON}, {Type: CON, Idle: true}}, "con1 con2", []int{256, 256},
			"metal/containerd:domains=con1+con2(idle)", "CON, next to an idle neighbour"},
		{[]Domain{{Type: HVM}, {Type: CON}}, "hvm1 con1", []int{256, 1024}, "vm:domains=hvm1+con1", "HVM and CON side by side"},
		{[]Domain{{Type: PVM, Size: 1024}, {Type: PVM, Weight: 512}, {Type: HVM, Idle: true}, {Type: HVM, Idle: true}},
			"pvm1 pvm2 hvm1 hvm2", []int{256, 512, 256, 256}, "vm:domains=pvm1(1KiB)+pvm2(weight 512)+hvm1(idle)+hvm2(idle)",
			"PVM serving 1KiB and PVM side by side, next to 2 idle neighbours"},
		{[]Domain{{Type: HOST}}, "host1", []int{1024}, "metal:domains=host1", "HOST"},
	} {
		c := Configuration{Name: "mix", Domains: tt.domains, Stack: tt.domains[0].Type.Stack()}
		if err := c.Validate(); err != nil {
			t.Error(err)
		}
		if got := strings.Join(c.DomainNames(), " "); got != tt.names || !slices.Equal(c.Weights(), tt.weights) {
			t.Errorf("%s: names %s, weights %v; want %s, %v", tt.notation, got, c.Weights(), tt.names, tt.weights)
		}
		if c.Notation() != tt.notation || c.Describe() != tt.words {
			t.Errorf("notation %q, words %q; want %q, %q", c.Notation(), c.Describe(), tt.notation, tt.words)
		}
	}
}

func TestInvalidDomains(t *testing.T) {
	hvm := []Domain{{Type: HVM}}
	for want, c := range map[string]Configuration{
		`unknown type of domain "xen"`: {Domains: []Domain{{Type: "xen"}}},
		"no domain is active":          {Domains: []Domain{{Type: HVM, Idle: true}}},
		"weight 1 of domain 1":         {Domains: []Domain{{Type: HVM, Weight: 1}}},
		"is idle and has size":         {Domains: []Domain{{Type: HVM}, {Type: HVM, Idle: true, Size: 9}}},
		"17 domains":                   {Domains: slices.Repeat(hvm, 17)},
		"drive remote":                 {Domains: hvm, Drive: Remote},
		"arch x86_64":                  {Domains: hvm, Arch: X8664},
	} {
		c.Name, c.Stack = "mix", Stack{VM}
		if err := c.Validate(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, want %q", c, err, want)
		}
	}
}
