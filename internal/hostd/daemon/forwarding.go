package daemon

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"unnest.io/unnest/internal/hostd/guestlog"
	"unnest.io/unnest/internal/hostd/quota"
	"unnest.io/unnest/internal/hostd/status"
	"unnest.io/unnest/internal/netdev/bridge"
)

const (
	// callsInterval is the time between two looks at bridge-nf-call, of which the kernel sends no events.
	callsInterval = time.Second
	// droppersEvery is how many of these looks pass between two at the rules of other programs.
	droppersEvery = 10
)

// watchForwarding looks for what other programs of the host, such as Docker, do to the frames of
// tenants, until ctx ends. It repairs what concerns bridges that the daemon has made, and reports the rest.
func (d *daemon) watchForwarding(ctx context.Context) {
	log := guestlog.Limit(d.config.Logger)
	for n := 0; n == 0 || wait(ctx, callsInterval); n++ {
		err := d.host.Panics.Contain("watch forwarding", func() error {
			if err := errors.Join(d.shareFragments(log), d.stopCalls(log)); err != nil || n%droppersEvery != 0 {
				return err
			}
			d.correctPorts(ctx)
			return d.findDroppers(log)
		})
		if err != nil {
			log.Error("look for programs that drop frames of pods", "error", err)
		}
	}
}

// stopCalls turns bridge-nf-call off again, if the daemon has made networks.
func (d *daemon) stopCalls(log *slog.Logger) error {
	all := networks(d.quotas())
	if all == nil {
		return nil
	}
	var ours []string
	for _, n := range all {
		ours = append(append(ours, n.Bridge), n.Further...)
	}
	on, err := bridge.StopCalls(ours)
	if len(on) == 0 {
		return err
	}
	d.metrics.CallsStopped(err)
	if err == nil {
		log.Warn("turned bridge-nf-call off, which another program such as Docker had turned on: it passes frames between pods to the rules of that program. "+
			"It is on for the bridges that are no tenant's only", "settings", on)
	}
	return err
}

// shareFragments limits the fragments of tenants while unfinished datagrams take much of their memory.
func (d *daemon) shareFragments(log *slog.Logger) error {
	f := d.networks.Load()
	if f == nil {
		return nil
	}
	limited, changed, err := f.ShareFragments(time.Now())
	switch {
	case changed && limited:
		log.Warn("unfinished datagrams take much memory: each tenant's fragments are limited until a minute after that")
	case changed:
		log.Info("fragments are not limited any more")
	}
	return err
}

// correctPorts connects ports again that another program has taken off their bridge.
func (d *daemon) correctPorts(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, callsInterval) // a guest that is busy has its turn the next time
	defer cancel()
	var all sync.WaitGroup
	defer all.Wait()
	for _, g := range d.all() {
		all.Go(func() { g.CorrectPorts(ctx) })
	}
}

// findDroppers replaces the list of problems, and logs what has changed.
func (d *daemon) findDroppers(log *slog.Logger) error {
	droppers, err := bridge.Droppers()
	if err != nil {
		return err
	}
	called, err := bridge.Called()
	if err != nil {
		return err
	}
	found := problems(d.quotas().Tenants, droppers, called)
	was := d.problems.Swap(&found)
	if was == nil {
		was = new([]status.Problem)
	}
	for _, p := range found {
		if !slices.Contains(*was, p) {
			log.Warn("another program may drop frames of pods", "tenant", p.Tenant, "bridge", p.Bridge, "cause", p.Cause)
		}
	}
	for _, p := range *was {
		if !slices.Contains(found, p) {
			log.Info("no other program drops frames of pods any more", "tenant", p.Tenant, "bridge", p.Bridge, "cause", p.Cause)
		}
	}
	return nil
}

// problems says on which bridges of tenants a chain of another program drops frames: what the host
// routes from and to a bridge with gateways, and with bridge-nf-call also what stays on a bridge.
func problems(tenants []quota.Tenant, droppers []bridge.Dropper, called []string) (found []status.Problem) {
	for _, t := range tenants {
		for i, name := range t.AllBridges() {
			for _, dropper := range droppers {
				calls := slices.ContainsFunc(called, func(file string) bool { return passes(dropper.Family, strings.HasSuffix(file, "ip6tables")) })
				routes := i == 0 && slices.ContainsFunc(t.Gateways, func(p netip.Prefix) bool { return passes(dropper.Family, p.Addr().Is6()) })
				var what string
				switch {
				case dropper.Names(name) || !calls && !routes:
					continue
				case calls:
					what = "what pods send to each other, as net.bridge.bridge-nf-call-* is on"
				default:
					what = "what pods send to other networks, and what comes from there"
				}
				found = append(found, status.Problem{Tenant: t.Name, Bridge: name, Cause: fmt.Sprintf(
					"the chain %s of another program has the policy drop: it drops %s. Accept the bridge there, on a host with Docker in DOCKER-USER "+
						"(iptables -I DOCKER-USER -i %s -j ACCEPT, and the same with -o), or remove that program", dropper, what, name)})
			}
		}
	}
	return found
}

// passes reports whether packets of a version pass chains of a family.
func passes(family string, v6 bool) bool {
	return family == "inet" || (family == "ip6") == v6
}
