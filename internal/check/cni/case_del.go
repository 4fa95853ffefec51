package cni

import (
	"github.com/containernetworking/cni/libcni"

	"unnest.io/unnest/internal/check"
)

// delCases check that DEL removes everything, whatever state it finds.
var delCases = []testCase{
	{"del", "DEL", Must, "", delTimes(1)},
	{"del-twice", "DEL", Must, "", delTimes(3)},
	{"del-without-prev-result", "DEL", Must, "", delWithoutPrevResult},
	{"del-netns-gone", "DEL", Must, "", delNetnsGone(attachment)},
	{"del-netns-empty", "DEL", Must, "", delNetnsGone(attachmentWithoutNetns)},
	{"del-link-gone", "DEL", Must, "", delLinkGone},
	{"del-unknown-container", "DEL", Must, "", delUnknownContainer},
	{"del-other-interface", "DEL", Must, "", delOtherInterface},
}

func delTimes(times int) func(*trial) {
	return func(t *trial) {
		p, _ := t.up(eth0)
		for i := range times {
			if err := t.del(t.ctx, attachment(p, eth0)); err != nil {
				check.Failf("time %d: %w", i+1, err)
			}
			t.mustBeEmpty(p)
		}
	}
}

func delWithoutPrevResult(t *trial) {
	p, _ := t.up(eth0)
	check.Must(t.withoutResults().del(t.ctx, attachment(p, eth0)))
	t.mustBeEmpty(p)
}

func attachmentWithoutNetns(p *pod, ifname string) *libcni.RuntimeConf {
	rt := attachment(p, ifname)
	rt.NetNS = ""
	return rt
}

// delNetnsGone deletes a pod whose network namespace is already gone, as after a crash of
// its node. The same container must then get an interface again.
func delNetnsGone(as func(*pod, string) *libcni.RuntimeConf) func(*trial) {
	return func(t *trial) {
		p, _ := t.up(eth0)
		check.Must(p.remove())
		check.Must(t.del(t.ctx, as(p, eth0)))
		check.Must(t.host.leak())
		next := t.pod()
		next.id = p.id
		check.Within("the same container in a new network namespace", func() { t.works(next, eth0, t.addTo(next, eth0)) })
	}
}

func delLinkGone(t *trial) {
	p, _ := t.up(eth0)
	t.takeLink(p, eth0)
	t.delFrom(p, eth0)
	check.Must(p.clean())
}

func delUnknownContainer(t *trial) {
	p := t.pod()
	check.Within("with a network namespace", func() { t.delFrom(p, eth0) })
	check.Within("without a network namespace", func() { check.Must(t.del(t.ctx, attachmentWithoutNetns(p, eth0))) })
	t.mustBeEmpty(p)
}

// delOtherInterface deletes an interface that the container never had.
func delOtherInterface(t *trial) {
	p, r := t.up(eth0)
	t.delFrom(p, "net9")
	check.Within("after DEL of another interface", func() { t.works(p, eth0, r) })
}
