package ports

import (
	"errors"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"sync"

	"unnest.io/unnest/internal/hostd/attachment"
	"unnest.io/unnest/internal/netdev/bridge"
	"unnest.io/unnest/internal/netdev/link"
)

// services are the service addresses of pods: a guest may send from those of its own pods, by
// the NICs that it has from its start. They outlast a connection to the guest's VMM.
type services struct {
	mu  sync.Mutex
	of  map[string][]netip.Addr // by a pod's port; nil: not read yet
	own map[string]OwnGuard     // of guests' own NICs, by TAP
}

// OwnGuard is the guard of a guest's own NIC, without service addresses.
type OwnGuard struct {
	MAC        string
	Addresses  []netip.Addr
	DHCP       bool
	Multicasts int
	Pods       []string // prefixes of its pods' ports
}

// GuardOwn guards a NIC that a guest has from its start.
func (p *Ports) GuardOwn(tap string, g OwnGuard) error {
	s := &p.services
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.read(); err != nil {
		return err
	}
	if s.own == nil {
		s.own = map[string]OwnGuard{}
	}
	s.own[tap] = g
	return errors.Join(p.guardServices(tap, g, nil), p.checksums.attachOwn(tap))
}

// isOwn reports whether a TAP is that of a NIC that a guest has from its start.
func (s *services) isOwn(tap string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, own := s.own[tap]
	return own
}

// hasMAC reports whether a guest's own NIC has a MAC.
func (s *services) hasMAC(mac string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, g := range s.own {
		if strings.EqualFold(g.MAC, mac) {
			return true
		}
	}
	return false
}

// UnguardOwn ends the guard of such a NIC.
func (p *Ports) UnguardOwn(tap string) error {
	s := &p.services
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.own, tap)
	return errors.Join(p.Policies.Speak(tap, nil), p.Unguard(tap), p.checksums.detachOwn(tap))
}

// guardServices limits what a guest's own NIC may send, and its pods' connections. The guest may send from an address only while the
// connections of its pod are filtered: the filter of a new address comes first, and that of an ending one ends last.
func (p *Ports) guardServices(tap string, g OwnGuard, ending map[netip.Addr]string) error {
	addresses, pods := slices.Clone(g.Addresses), map[netip.Addr]string{}
	for port, all := range p.services.of {
		if IsPort(port, g.Pods...) {
			addresses = append(addresses, all...)
			for _, a := range all {
				pods[a] = port
			}
		}
	}
	both := map[netip.Addr]string{}
	maps.Copy(both, ending)
	maps.Copy(both, pods)
	if err := p.Policies.Speak(tap, both); err != nil {
		return err
	}
	if err := p.Guard(tap, g.MAC, addresses, g.DHCP, g.Multicasts); err != nil || len(both) == len(pods) {
		return err
	}
	return p.Policies.Speak(tap, pods)
}

// EndServices ends the service addresses of the pod behind a port. If they do not end, the port leaves its bridge. A caller that deletes the
// port's link itself calls it first: the next daemon finds the addresses by the link's alias.
func (p *Ports) EndServices(port string) error {
	err := p.setServices(port, nil)
	if err == nil {
		return nil
	}
	if left := bridge.Leave(port); !link.IsGone(left) {
		err = errors.Join(err, left)
	}
	return err
}

// setServices gives the pod behind a port service addresses, in place of those that it has.
func (p *Ports) setServices(port string, addresses []netip.Addr) (err error) {
	s := &p.services
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.read(); err != nil {
		return err
	}
	was := s.of[port]
	if slices.Equal(was, addresses) {
		return nil
	}
	defer func() {
		if err != nil { // the next call tries again
			s.of[port] = was
		}
	}()
	if s.of[port] = addresses; len(addresses) == 0 {
		delete(s.of, port)
	}
	ending := map[netip.Addr]string{}
	for _, a := range was {
		ending[a] = port
	}
	for tap, g := range s.own {
		if IsPort(port, g.Pods...) {
			err = errors.Join(err, p.guardServices(tap, g, ending))
		}
	}
	return err
}

// ports lists those whose pods have service addresses.
func (s *services) ports() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Collect(maps.Keys(s.of))
}

// read reads the addresses of the pods that an earlier daemon has connected.
func (s *services) read() error {
	if s.of != nil {
		return nil
	}
	links, err := link.List()
	if err != nil {
		return err
	}
	s.of = map[string][]netip.Addr{}
	for _, l := range links {
		if key, r, ok := attachment.ParseAlias(l.Alias); ok && key.Kind == attachment.NIC && len(r.Services) > 0 {
			s.of[l.Name] = r.Services
		}
	}
	return nil
}
