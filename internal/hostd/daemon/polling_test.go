package daemon

import (
	"context"
	"log/slog"
	"net/netip"
	"strings"
	"testing"
	"time"

	"unnest.io/unnest/internal/hostd/record"
	"unnest.io/unnest/internal/netdev/tap"
)

const pollsFor = 50 * time.Microsecond

// refusesPolling reports whether an error says that vhost-net is missing.
func refusesPolling(err error) bool {
	return err != nil && strings.Contains(err.Error(), "poll by vhost-net for 50µs: open /dev/vhost-net: ")
}

// A daemon whose NICs are to poll does not start on a host without vhost-net.
func TestStartWithoutVHost(t *testing.T) {
	p := testQuotas()
	p.Listen = netip.MustParseAddrPort("127.0.0.1:7443")
	if err := checkPolling(p); err != nil {
		t.Errorf("nothing polls: got %v", err)
	}
	p.Tenants[0].VHostPoll = pollsFor
	if tap.VHost() {
		if err := checkPolling(p); err != nil {
			t.Error(err)
		}
		return
	}
	err := Serve(context.WithoutCancel(t.Context()), Config{StateDir: t.TempDir(), Quotas: p, Logger: slog.New(slog.DiscardHandler)})
	if !refusesPolling(err) || !strings.HasPrefix(err.Error(), "tenant default: vhostPoll: ") {
		t.Errorf("got %v", err)
	}
}

// A reload that wants polling changes nothing on a host without vhost-net, and a guest that wants
// it gets no NIC. Nothing is left of a refused plug.
func TestVHostPoll(t *testing.T) {
	l := newLab(t)
	m := l.boot(1, 2)
	m.record.VHostPoll = pollsFor
	l.check(record.Write(l.dir, m.record))
	const tenants = "listen: 127.0.0.1:7443\ntenants: [{name: default, bridge: br0, mtu: 1400, ranges: [{subnet: 10.9.0.0/24}]%s}]\n"
	l.configure(strings.Replace(tenants, "%s", "", 1))
	l.serve(patience)
	_, err := m.attach("c1")
	c := l.reloaded(func() { l.configure(strings.Replace(tenants, "%s", ", vhostPoll: 50us", 1)) })
	if tap.VHost() {
		if err != nil || c.Error != "" {
			t.Errorf("with vhost-net: got %v and %+v", err, c)
		}
		return
	}
	if !refusesPolling(err) || !strings.Contains(c.Error, "tenant default: vhostPoll: ") {
		t.Errorf("without vhost-net: got %v and %+v", err, c)
	}
	if taps := l.taps(); len(taps) > 0 {
		t.Errorf("left are %q", taps)
	}
	m.record.VHostPoll = 0
	l.check(record.Write(l.dir, m.record))
	l.eventually("the guest gets a NIC without polling", func() bool { _, err := m.attach("c1"); return err == nil })
}

// A guest whose record has queues gets NICs with as many pairs, in place of the tenant's.
func TestQueuesOfGuest(t *testing.T) {
	l := newLab(t)
	m := l.boot(1, 2)
	m.record.Queues = 3
	l.check(record.Write(l.dir, m.record))
	l.configure("listen: 127.0.0.1:7443\ntenants: [{name: default, bridge: br0, mtu: 1400, queues: 2, ranges: [{subnet: 10.9.0.0/24}]}]\n")
	l.serve(patience)
	m.mustAttach("c1")
	nic, _, _ := strings.Cut(m.devices()[0], " ")
	if mq, vectors := m.property(nic, "mq"), m.property(nic, "vectors"); mq != "true" || vectors != "8" {
		t.Errorf("the NIC has mq %s, %s vectors; want those of three pairs of queues", mq, vectors)
	}
}
