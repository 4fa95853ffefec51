package cni

import (
	"bytes"
	"errors"
	"fmt"

	"github.com/vishvananda/netlink"
)

// addChecks ask whether ADD makes what its result says.
var addChecks = []check{
	{"add-result", "ADD Success", Must, "", func(t *trial) error { return t.withRawResult(shape) }},
	{"add-result-converts", "ADD Success", Must, "", func(t *trial) error { return t.withRawResult(converts) }},
	{"add-interface", "ADD", Must, "", addInterface},
	{"add-reaches-peer", "Overview", Must, "", addReachesPeer},
	{"add-other-name", "Parameters", Must, "", addOtherName},
	{"add-kubernetes-args", "Parameters", Must, "", addKubernetesArgs},
	{"add-two-interfaces", "ADD", Must, "", addTwoInterfaces},
	{"add-name-taken", "ADD", Must, "", addNameTaken},
	{"add-twice", "ADD", Must, "", addTwice},
	{"add-again-after-del", "ADD", Must, "", addAgainAfterDel},
}

// withRawResult gives look what the first plugin has printed.
func (t *trial) withRawResult(look func(version string, text []byte) error) error {
	p, err := t.pod()
	if err != nil {
		return err
	}
	t.touch(p, eth0)
	a, err := t.call("ADD", attachment(p, eth0), nil)
	if err != nil {
		return err
	}
	if err := a.err(); err != nil {
		return err
	}
	return look(t.version, a.stdout)
}

func addInterface(t *trial) error {
	p, r, err := t.up(eth0)
	if err != nil {
		return err
	}
	return verify(p, eth0, r)
}

func addReachesPeer(t *trial) error {
	p, r, err := t.up(eth0)
	if err != nil {
		return err
	}
	if len(t.peers(r)) == 0 {
		return notApplicable("no peer was given, and the result has no gateway")
	}
	return t.reach(p, r)
}

func addOtherName(t *trial) error {
	p, r, err := t.up("net-0.a_b")
	if err != nil {
		return err
	}
	return t.works(p, "net-0.a_b", r)
}

// addKubernetesArgs adds a pod with the arguments that containerd and CRI-O give.
func addKubernetesArgs(t *trial) error {
	p, err := t.pod()
	if err != nil {
		return err
	}
	rt := attachment(p, eth0)
	rt.Args = [][2]string{
		{"IgnoreUnknown", "1"}, {"K8S_POD_NAMESPACE", "default"}, {"K8S_POD_NAME", "web-0"},
		{"K8S_POD_INFRA_CONTAINER_ID", p.id}, {"K8S_POD_UID", "9a3f0a7c-5f0e-4b0b-9d55-0d9c1a3f1b11"},
	}
	t.touch(p, eth0)
	r, err := t.add(t.ctx, rt)
	if err != nil {
		return err
	}
	return t.works(p, eth0, r)
}

// addTwoInterfaces deletes the second of two: the first has to go on working.
func addTwoInterfaces(t *trial) error {
	p, first, err := t.up(eth0)
	if err != nil {
		return err
	}
	second, err := t.addTo(p, "net1")
	if err != nil {
		return fmt.Errorf("second interface: %w", err)
	}
	if err := errors.Join(verify(p, eth0, first), verify(p, "net1", second)); err != nil {
		return err
	}
	if err := t.delFrom(p, "net1"); err != nil {
		return err
	}
	if _, err := p.link("net1"); err == nil {
		return errors.New("net1 is there after its DEL")
	}
	if err := t.works(p, eth0, first); err != nil {
		return fmt.Errorf("the first after DEL of the second: %w", err)
	}
	return nil
}

func addNameTaken(t *trial) error {
	p, err := t.pod()
	if err != nil {
		return err
	}
	taken := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: eth0}, PeerName: "other"}
	if err := p.inside(func(h *netlink.Handle) error { return h.LinkAdd(taken) }); err != nil {
		return fmt.Errorf("make a link that is in the way: %w", err)
	}
	before, err := p.link(eth0)
	if err != nil {
		return err
	}
	p.links[eth0], p.links["other"] = true, true
	_, err = t.addTo(p, eth0)
	if err := failed("ADD with a link of the name in the pod", err); err != nil {
		return err
	}
	after, err := p.link(eth0)
	if err != nil {
		return fmt.Errorf("the link that was in the way: %w", err)
	}
	if b, a := before.Attrs(), after.Attrs(); b.Index != a.Index || !bytes.Equal(b.HardwareAddr, a.HardwareAddr) {
		return fmt.Errorf("the link that was in the way was %d %s and is %d %s", b.Index, b.HardwareAddr, a.Index, a.HardwareAddr)
	}
	return t.empty(p)
}

func addTwice(t *trial) error {
	p, r, err := t.up(eth0)
	if err != nil {
		return err
	}
	_, err = t.addTo(p, eth0)
	if err := failed("second ADD of the same container and interface", err); err != nil {
		return err
	}
	if err := t.works(p, eth0, r); err != nil {
		return fmt.Errorf("the first after the second has failed: %w", err)
	}
	return nil
}

func addAgainAfterDel(t *trial) error {
	p, _, err := t.up(eth0)
	if err != nil {
		return err
	}
	if err := t.delFrom(p, eth0); err != nil {
		return err
	}
	r, err := t.addTo(p, eth0)
	if err != nil {
		return fmt.Errorf("after DEL: %w", err)
	}
	return t.works(p, eth0, r)
}
