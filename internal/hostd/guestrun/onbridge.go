package guestrun

import (
	"context"

	"unnest.io/unnest/internal/hostd/attachment"
	"unnest.io/unnest/internal/hostd/hotplug"
)

// CorrectPorts connects the ports of pods again that another program has taken off their bridge or set
// down. It waits for the run until ctx ends.
func (g *Guest) CorrectPorts(ctx context.Context) {
	_ = g.submit(ctx, func(context.Context) { g.nics.correctPorts() }) // a run that has ended has none
}

func (n *nics) correctPorts() {
	for _, s := range n.state.Slots() {
		if s.Status == hotplug.Plugged && s.Key.Kind == attachment.NIC {
			n.correctPort(s.Key, s.Record, s.TAP(n.Record.TAPPrefix()), s.MAC(n.Record.MACPrefix()))
		}
	}
	for key, v := range n.trunk.ports {
		n.correctPort(key, v.record, v.port, n.trunk.mac(v.id))
	}
}

func (g *Guest) correctPort(key attachment.Key, r attachment.Record, port, mac string) {
	if r.Bridge == "" || g.nics.unadopted[key] {
		return
	}
	if cause := g.host.Ports.CheckLink(port, r.Bridge); cause != nil {
		g.log.Warn("another program has cut a pod off: its port is connected again", "container", key.Owner, "interface", key.Name,
			"cause", cause, "error", g.adoptPort(key, r, port, mac))
	}
}
