package share

import (
	"errors"
	"slices"
	"time"
)

// Reasons why there is no port.
var (
	ErrNoPort  = errors.New("no free port for what is shared: detach something, or start the guest with more")
	ErrResting = errors.New("the free ports have to rest")
	ErrLeaving = errors.New("it is being detached")
)

// Ports are the ports of one guest for what its pods share, and what is in each. It
// is not for several goroutines.
//
// A guest that gives a device up may have noted twice that it is to go, and takes
// what is in the port by then (see package hotplug). So a port rests once its device
// is gone, and what was gone before the ports were seen may have gone just then.
type Ports struct {
	rest  time.Duration
	ports []port
}

type port struct {
	id      string // of the device; "": none
	leaving bool   // it was asked for
	since   time.Time
}

// NewPorts returns the n ports of a guest, in which there are devices now: device
// IDs by the ports' numbers, from 1.
func NewPorts(n int, rest time.Duration, devices map[int]string, now time.Time) *Ports {
	p := &Ports{rest: rest, ports: make([]port, n)}
	for i := range p.ports {
		p.ports[i] = port{id: devices[i+1], since: now}
	}
	return p
}

// Find returns the port of a device, 0 when it has none.
func (p *Ports) Find(id string) int {
	return 1 + slices.IndexFunc(p.ports, func(o port) bool { return o.id == id })
}

// Take gives a port to a device that has none: the one that is empty for longest.
// With ErrResting it says how long the first has to rest yet.
func (p *Ports) Take(id string, now time.Time) (number int, wait time.Duration, err error) {
	best := -1
	for i, o := range p.ports {
		if o.id == "" && (best < 0 || o.since.Before(p.ports[best].since)) {
			best = i
		}
	}
	if best < 0 {
		return 0, 0, ErrNoPort
	}
	if wait = p.ports[best].since.Add(p.rest).Sub(now); wait > 0 {
		return 0, wait, ErrResting
	}
	p.ports[best].id = id
	return best + 1, 0, nil
}

// Untake gives a port back in which no device ever was.
func (p *Ports) Untake(number int) { p.ports[number-1].id = "" }

// Leave notes that the guest is asked to give a device up. It reports false if that
// has no port.
func (p *Ports) Leave(id string) bool {
	i := p.Find(id) - 1
	if i >= 0 {
		p.ports[i].leaving = true
	}
	return i >= 0
}

// Leaving reports whether the guest has been asked for a device.
func (p *Ports) Leaving(id string) bool {
	i := p.Find(id) - 1
	return i >= 0 && p.ports[i].leaving
}

// Gone notes that a device is gone; its port begins to rest.
func (p *Ports) Gone(id string, now time.Time) {
	if i := p.Find(id) - 1; i >= 0 {
		p.ports[i] = port{since: now}
	}
}

// Devices are the IDs of what is in the ports, by their numbers.
func (p *Ports) Devices() map[int]string {
	all := map[int]string{}
	for i, o := range p.ports {
		if o.id != "" {
			all[i+1] = o.id
		}
	}
	return all
}
