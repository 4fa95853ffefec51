package guestrun

// releaseEnded releases what was kept for attachments that have ended without a daemon. It
// releases nothing as long as the guest has attachments that cannot be taken over.
func (g *Guest) releaseEnded() {
	if len(g.nics.unadopted) > 0 {
		return
	}
	there := map[string]bool{}
	for key := range g.nics.trunk.ports {
		there[g.owner(key)] = true
	}
	for _, s := range g.nics.state.Slots() {
		there[g.owner(s.Key)] = true
	}
	for _, o := range g.Tenant.Of(g.Record.Name) {
		if !there[o] {
			g.Tenant.Release(o)
		}
	}
}
