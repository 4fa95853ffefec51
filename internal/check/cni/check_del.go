package cni

import (
	"errors"
	"fmt"

	"github.com/containernetworking/cni/libcni"
)

// delChecks ask whether DEL takes everything away, whatever there is.
var delChecks = []check{
	{"del", "DEL", Must, "", delOnce},
	{"del-twice", "DEL", Must, "", delTwice},
	{"del-without-prev-result", "DEL", Must, "", delWithoutPrevResult},
	{"del-netns-gone", "DEL", Must, "", func(t *trial) error { return t.delNetnsGone(attachment) }},
	{"del-netns-empty", "DEL", Must, "", func(t *trial) error { return t.delNetnsGone(attachmentWithoutNetns) }},
	{"del-link-gone", "DEL", Must, "", delLinkGone},
	{"del-unknown-container", "DEL", Must, "", delUnknownContainer},
	{"del-other-interface", "DEL", Must, "", delOtherInterface},
}

func delOnce(t *trial) error {
	p, _, err := t.up(eth0)
	if err != nil {
		return err
	}
	if err := t.delFrom(p, eth0); err != nil {
		return err
	}
	return t.empty(p)
}

func delTwice(t *trial) error {
	if err := delOnce(t); err != nil {
		return err
	}
	p := t.pods[0]
	for _, again := range []string{"second", "third"} {
		if err := t.delFrom(p, eth0); err != nil {
			return fmt.Errorf("%s time: %w", again, err)
		}
	}
	return t.empty(p)
}

func delWithoutPrevResult(t *trial) error {
	p, _, err := t.up(eth0)
	if err != nil {
		return err
	}
	if err := t.forgetful().del(t.ctx, attachment(p, eth0)); err != nil {
		return err
	}
	return t.empty(p)
}

func attachmentWithoutNetns(p *pod, ifname string) *libcni.RuntimeConf {
	rt := attachment(p, ifname)
	rt.NetNS = ""
	return rt
}

// delNetnsGone deletes a pod whose network namespace went before, as when its
// node has crashed. What it had has to be free for the same container again.
func (t *trial) delNetnsGone(as func(*pod, string) *libcni.RuntimeConf) error {
	p, _, err := t.up(eth0)
	if err != nil {
		return err
	}
	if err := p.remove(); err != nil {
		return err
	}
	if err := t.del(t.ctx, as(p, eth0)); err != nil {
		return err
	}
	if err := t.ground.leak(); err != nil {
		return err
	}
	next, err := t.pod()
	if err != nil {
		return err
	}
	next.id = p.id
	r, err := t.addTo(next, eth0)
	if err != nil {
		return fmt.Errorf("the same container in a new network namespace: %w", err)
	}
	return t.works(next, eth0, r)
}

func delLinkGone(t *trial) error {
	p, _, err := t.up(eth0)
	if err != nil {
		return err
	}
	if err := t.takeLink(p, eth0); err != nil {
		return err
	}
	if err := t.delFrom(p, eth0); err != nil {
		return err
	}
	return p.clean()
}

func delUnknownContainer(t *trial) error {
	p, err := t.pod()
	if err != nil {
		return err
	}
	if err := t.delFrom(p, eth0); err != nil {
		return fmt.Errorf("with a network namespace: %w", err)
	}
	if err := t.del(t.ctx, attachmentWithoutNetns(p, eth0)); err != nil {
		return fmt.Errorf("without a network namespace: %w", err)
	}
	return t.empty(p)
}

// delOtherInterface deletes an interface that the container never had.
func delOtherInterface(t *trial) error {
	p, r, err := t.up(eth0)
	if err != nil {
		return err
	}
	if err := t.delFrom(p, "net9"); err != nil {
		return err
	}
	if err := t.works(p, eth0, r); err != nil {
		return errors.Join(errors.New("after DEL of another interface"), err)
	}
	return nil
}
