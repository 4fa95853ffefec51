package ports

import (
	"errors"
	"slices"
	"sync"

	"unnest.io/unnest/internal/netdev/link"
)

// OwnNICs are the own NICs of guests of the configuration that the daemon has found through
// the VMM, and of guests that are not enrolled.
type OwnNICs struct {
	ports *Ports

	mu    sync.Mutex
	found map[string]OwnNIC // by TAP
}

// NewOwnNICs returns the own NICs of guests before any is found.
func NewOwnNICs(p *Ports) *OwnNICs { return &OwnNICs{ports: p, found: map[string]OwnNIC{}} }

// OwnNIC is a NIC that a guest has from its start.
type OwnNIC struct {
	Guest     string
	Unguarded string // why it is not guarded; empty: it is, or is on no bridge of the tenant
	Intended  bool   // that it is not
}

// Forget forgets the NICs of a guest that is gone, and ends their guard.
func (o *OwnNICs) Forget(guest string) error {
	return o.forget(guest, func(string) bool { return true })
}

// ForgetEnded is Forget for those NICs whose TAP does not exist: whoever has a TAP can send.
func (o *OwnNICs) ForgetEnded(guest string) error {
	return o.forget(guest, func(tap string) bool {
		_, err := link.Find(tap)
		return link.IsGone(err)
	})
}

func (o *OwnNICs) forget(guest string, which func(tap string) bool) (err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for tap, n := range o.found {
		if n.Guest != guest || !which(tap) {
			continue
		}
		delete(o.found, tap)
		if n.Unguarded == "" {
			err = errors.Join(err, o.ports.UnguardOwn(tap))
		}
	}
	return err
}

// Set records a NIC by its TAP.
func (o *OwnNICs) Set(tap string, n OwnNIC) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.found[tap] = n
}

// Of returns the NIC on a TAP, and whether there is one.
func (o *OwnNICs) Of(tap string) (OwnNIC, bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	n, ok := o.found[tap]
	return n, ok
}

// Guests lists the guests of which NICs were found.
func (o *OwnNICs) Guests() (names []string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, n := range o.found {
		names = append(names, n.Guest)
	}
	return slices.Compact(slices.Sorted(slices.Values(names)))
}
