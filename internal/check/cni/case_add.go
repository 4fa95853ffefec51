package cni

import (
	"bytes"

	"github.com/vishvananda/netlink"

	"unnest.io/unnest/internal/check"
)

// addCases check that ADD does what its result says.
var addCases = []testCase{
	{"add-result", "ADD Success", Must, "", rawResult(shape)},
	{"add-result-converts", "ADD Success", Must, "", rawResult(converts)},
	{"add-interface", "ADD", Must, "", addInterface},
	{"add-reaches-peer", "Overview", Must, "", addReachesPeer},
	{"add-other-name", "Parameters", Must, "", addOtherName},
	{"add-kubernetes-args", "Parameters", Must, "", addKubernetesArgs},
	{"add-two-interfaces", "ADD", Must, "", addTwoInterfaces},
	{"add-name-taken", "ADD", Must, "", addNameTaken},
	{"add-twice", "ADD", Must, "", addTwice},
	{"add-again-after-del", "ADD", Must, "", addAgainAfterDel},
}

// rawResult passes the output of the first plugin to inspect.
func rawResult(inspect func(version string, text []byte) error) func(*trial) {
	return func(t *trial) {
		p := t.pod()
		t.touch(p, eth0)
		a := t.run(p, call{command: "ADD"})
		check.Must(a.err())
		check.Must(inspect(t.version, a.stdout))
	}
}

func addInterface(t *trial) {
	p, r := t.up(eth0)
	check.Must(verify(p, eth0, r))
}

func addReachesPeer(t *trial) {
	p, r := t.up(eth0)
	if len(t.peersOf(r)) == 0 {
		check.Skip("no peer was given, and the result has no gateway")
	}
	check.Must(t.reach(t.ctx, p, r))
}

func addOtherName(t *trial) {
	const name = "net-0.a_b"
	p, r := t.up(name)
	t.works(p, name, r)
}

// addKubernetesArgs adds a pod with the arguments that containerd and CRI-O pass.
func addKubernetesArgs(t *trial) {
	p := t.pod()
	rt := attachment(p, eth0)
	rt.Args = [][2]string{
		{"IgnoreUnknown", "1"}, {"K8S_POD_NAMESPACE", "default"}, {"K8S_POD_NAME", "web-0"},
		{"K8S_POD_INFRA_CONTAINER_ID", p.id}, {"K8S_POD_UID", "9a3f0a7c-5f0e-4b0b-9d55-0d9c1a3f1b11"},
	}
	t.touch(p, eth0)
	t.works(p, eth0, check.Get(t.add(t.ctx, rt)))
}

// addTwoInterfaces deletes the second of two interfaces; the first must still work.
func addTwoInterfaces(t *trial) {
	const second = "net1"
	p, r := t.up(eth0)
	check.Within("second interface", func() {
		r2 := t.addTo(p, second)
		check.Must(verify(p, eth0, r))
		check.Must(verify(p, second, r2))
		t.delFrom(p, second)
	})
	if _, err := p.link(second); err == nil {
		check.Failf("%s still exists after its DEL", second)
	}
	check.Within("first interface after DEL of the second", func() { t.works(p, eth0, r) })
}

// addNameTaken adds a pod that already has a link named eth0. The link must stay.
func addNameTaken(t *trial) {
	p := t.pod()
	taken := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: eth0}, PeerName: "other"}
	check.Within("create a link named "+eth0, func() {
		check.Must(p.inside(func(h *netlink.Handle) error { return h.LinkAdd(taken) }))
	})
	before := check.Get(p.link(eth0)).Attrs()
	p.links[eth0], p.links["other"] = true, true
	_, err := t.tryAdd(p, eth0)
	mustFail("ADD to a pod that has a link named "+eth0, err)
	after := check.Get(p.link(eth0)).Attrs()
	if before.Index != after.Index || !bytes.Equal(before.HardwareAddr, after.HardwareAddr) {
		check.Failf("ADD replaced the existing link: index %d, MAC %s became index %d, MAC %s",
			before.Index, before.HardwareAddr, after.Index, after.HardwareAddr)
	}
	t.mustBeEmpty(p)
}

func addTwice(t *trial) {
	p, r := t.up(eth0)
	_, err := t.tryAdd(p, eth0)
	mustFail("a second ADD of the same container and interface", err)
	check.Within("after the second ADD failed", func() { t.works(p, eth0, r) })
}

func addAgainAfterDel(t *trial) {
	p, _ := t.up(eth0)
	t.delFrom(p, eth0)
	check.Within("after DEL", func() { t.works(p, eth0, t.addTo(p, eth0)) })
}
