package hotplug

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"unnest.io/unnest/internal/hostd/attachment"
	"unnest.io/unnest/internal/hostd/seedtest"
)

// ports simulates a guest's ports for shares, and the caller that performs the actions.
type ports struct {
	t       *testing.T
	rng     *rand.Rand
	state   State
	devices map[int]attachment.Key // by port
	asked   map[attachment.Key]bool
	timers  []Timer
	waiting map[RequestID]bool
	last    RequestID
}

// newPorts returns two empty ports.
func newPorts(t *testing.T, seed, stream uint64) *ports {
	t.Helper()
	p := &ports{
		t: t, rng: rand.New(rand.NewPCG(seed, stream)), devices: map[int]attachment.Key{},
		asked: map[attachment.Key]bool{}, waiting: map[RequestID]bool{},
	}
	var err error
	p.state, err = New(Config{Shares: true, Slots: 2, UnplugTimeout: time.Second, UnplugTries: 2, Cooldown: time.Second})
	if err != nil {
		t.Fatal(err)
	}
	p.observe()
	return p
}

func volumeKey(i int) attachment.Key {
	return attachment.Key{Kind: attachment.Volume, Owner: "web", Name: fmt.Sprint("v", i)}
}

// endsWithBoot tells half of the volumes from those that last.
func endsWithBoot(k attachment.Key) bool { return k == volumeKey(0) || k == volumeKey(1) }

func (p *ports) feed(e Event) {
	p.t.Helper()
	for queue := []Event{e}; len(queue) > 0; {
		var actions []Action
		p.state, actions = Step(p.state, queue[0])
		queue = queue[1:]
		for _, a := range actions {
			if e := p.perform(a); e != nil {
				queue = append(queue, e)
			}
		}
	}
}

func (p *ports) perform(action Action) Event {
	p.t.Helper()
	switch a := action.(type) {
	case AddShare:
		if there, taken := p.devices[a.Slot]; taken || p.port(a.Key.String()) > 0 {
			p.t.Fatalf("%s, but the port has %q, and the guest %v", a, there, p.devices)
		}
		fails, uncertain := p.rng.IntN(5) == 0, p.rng.IntN(2) == 0
		if !fails || uncertain && p.rng.IntN(2) == 0 {
			p.devices[a.Slot] = a.Key
		}
		if fails {
			return PlugFailed{Occupant: a.Occupant, Step: StepDevice, Err: errors.New("injected error"), Uncertain: uncertain}
		}
		return PlugSucceeded{a.Occupant}
	case DeviceDel:
		port := p.port(a.ID)
		if port == 0 {
			return DeviceDeleted{Device: a.ID}
		}
		p.asked[p.devices[port]] = true
	case DeleteBackend:
		if p.port(a.Key.String()) > 0 {
			p.t.Fatalf("%s, but its device is there", a)
		}
	case StartTimer:
		p.timers = append(p.timers, a.Timer)
	case Reply:
		if !p.waiting[a.Request] {
			p.t.Fatalf("%s, which does not wait", a)
		}
		delete(p.waiting, a.Request)
		if got := a.Attachment.Slot; a.Err == nil && got > 0 && p.devices[got] != a.Key {
			p.t.Fatalf("%s, but the ports are %v", a, p.devices)
		}
	case AddTAP, NetdevAdd, DeviceAdd, Connect, Disconnect, NetdevDel, DelTAP:
		p.t.Fatalf("%s, in ports for shares", a)
	}
	return nil
}

// port returns the port of a device, 0 if it has none.
func (p *ports) port(id string) int {
	for port, key := range p.devices {
		if key.String() == id {
			return port
		}
	}
	return 0
}

func (p *ports) giveUp(port int) {
	key := p.devices[port]
	delete(p.devices, port)
	delete(p.asked, key)
	p.feed(DeviceDeleted{Device: key.String()})
}

func (p *ports) move() {
	key := volumeKey(p.rng.IntN(4))
	p.last++
	switch n := p.rng.IntN(10); {
	case n < 3:
		p.waiting[p.last] = true
		p.feed(Attach{Request: p.last, Key: key})
	case n < 5:
		p.waiting[p.last] = true
		p.feed(Detach{Request: p.last, Key: key})
	case n < 7 && len(p.timers) > 0:
		p.expire()
	case n < 9:
		if port := p.port(key.String()); port > 0 && (p.asked[key] || p.rng.IntN(10) == 0) {
			p.giveUp(port)
		}
	case p.rng.IntN(2) == 0:
		p.feed(GuestReset{})
	default:
		p.observe()
	}
}

func (p *ports) expire() {
	i := p.rng.IntN(len(p.timers))
	timer := p.timers[i]
	p.timers = append(p.timers[:i:i], p.timers[i+1:]...)
	p.feed(UnplugTimedOut{timer})
}

func (p *ports) observe() {
	var o Observed
	for port, key := range p.devices {
		o.Devices = append(o.Devices, ObservedDevice{ID: key.String(), Slot: port, Key: key})
	}
	p.feed(o)
}

// Random sequences of events of a guest's ports. Every request is answered once, and at the
// end every port is free.
func TestSharesAtRandom(t *testing.T) {
	seedtest.Each(t, 300, func(t *testing.T, seed uint64) int {
		const moves = 200
		p := newPorts(t, seed, 3)
		for range moves {
			p.move()
		}
		for i := range 4 {
			p.last++
			p.waiting[p.last] = true
			p.feed(Detach{Request: p.last, Key: volumeKey(i)})
		}
		for len(p.devices)+len(p.timers) > 0 {
			for port := range p.devices {
				p.giveUp(port)
			}
			if len(p.timers) > 0 {
				p.expire()
			}
		}
		if slots := p.state.Slots(); len(p.waiting) > 0 || slots[0].Status != Free || slots[1].Status != Free {
			t.Fatalf("requests %v wait, slots are %s", p.waiting, describe(p.state))
		}
		return moves
	})
}

// After a reset the caller detaches what ends with the boot. Whatever was under way, none of it is left in a port once the guest has given
// up what it was asked for, and what lasts stays where it is, or comes.
func TestSharesEndWithTheBoot(t *testing.T) {
	seedtest.Each(t, 300, func(t *testing.T, seed uint64) int {
		const moves = 50
		p := newPorts(t, seed, 4)
		for range moves {
			p.move()
		}
		lasting := func() (all []int) {
			for port, key := range p.devices {
				if s := p.state.Slots()[port-1]; !endsWithBoot(key) && s.Status == Plugged {
					all = append(all, port)
				}
			}
			slices.Sort(all)
			return all
		}
		stay := lasting()
		p.feed(GuestReset{})
		for i := range 4 {
			if key := volumeKey(i); endsWithBoot(key) {
				p.last++
				p.waiting[p.last] = true
				p.feed(Detach{Request: p.last, Key: key})
			}
		}
		for len(p.asked)+len(p.timers) > 0 {
			for port, key := range p.devices {
				if p.asked[key] {
					p.giveUp(port)
				}
			}
			if len(p.timers) > 0 {
				p.expire()
			}
		}
		for port, key := range p.devices {
			if endsWithBoot(key) {
				t.Fatalf("%s is in port %d, slots are %s", key, port, describe(p.state))
			}
		}
		if after := lasting(); !slices.ContainsFunc(stay, func(port int) bool { return !slices.Contains(after, port) }) {
			return moves
		}
		t.Fatalf("of the volumes that last in ports %v, %v are left; slots are %s", stay, lasting(), describe(p.state))
		return 0
	})
}
