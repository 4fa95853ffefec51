package daemon

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"

	"golang.org/x/sys/unix"

	"unnest.io/unnest/internal/vmm"
)

// fakeVMM is a VMM in memory, of a guest that releases at once what it is asked for.
type fakeVMM struct {
	slots  int
	own    []vmm.NIC
	events chan vmm.Event
	done   chan struct{}
	broken func(call string) // called first by each call below; may panic

	mu      sync.Mutex
	devices []vmm.Occupied
	taps    map[string][]*os.File // by netdev: a TAP exists as long as the VMM has it
}

func newFakeVMM(slots int) *fakeVMM {
	return &fakeVMM{slots: slots, events: make(chan vmm.Event, 1024), done: make(chan struct{}), taps: map[string][]*os.File{}, broken: func(string) {}}
}

func (f *fakeVMM) AddNetdev(_ context.Context, id string, t vmm.TAP) error {
	f.broken("AddNetdev")
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, q := range t.Queues {
		fd, err := unix.FcntlInt(q.File.Fd(), unix.F_DUPFD_CLOEXEC, 0)
		if err != nil {
			return err
		}
		f.taps[id] = append(f.taps[id], os.NewFile(uintptr(fd), t.Name))
	}
	return nil
}

// end ends the VMM: its TAPs disappear.
func (f *fakeVMM) end() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for id := range f.taps {
		_ = f.closeTAP(id)
	}
}

func (f *fakeVMM) AddDevice(_ context.Context, d vmm.Device) error {
	f.broken("AddDevice")
	f.mu.Lock()
	defer f.mu.Unlock()
	if slices.ContainsFunc(f.devices, func(o vmm.Occupied) bool { return o.Slot == d.Slot || o.ID == d.ID }) {
		return &vmm.RefusedError{Err: fmt.Errorf("slot %d is taken", d.Slot)}
	}
	f.devices = append(f.devices, vmm.Occupied{ID: d.ID, Slot: d.Slot})
	return nil
}

func (f *fakeVMM) DeleteDevice(_ context.Context, id string) error {
	f.broken("DeleteDevice")
	f.mu.Lock()
	defer f.mu.Unlock()
	i := slices.IndexFunc(f.devices, func(o vmm.Occupied) bool { return o.ID == id })
	if i < 0 {
		return vmm.ErrNotFound
	}
	f.devices = slices.Delete(f.devices, i, i+1)
	f.events <- vmm.Deleted{ID: id}
	return nil
}

func (f *fakeVMM) OwnNICs(context.Context) ([]vmm.NIC, error) { return f.own, nil }

func (f *fakeVMM) DeleteNetdev(_ context.Context, id string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.closeTAP(id)
}

func (f *fakeVMM) closeTAP(id string) (err error) {
	for _, queue := range f.taps[id] {
		err = errors.Join(err, queue.Close())
	}
	delete(f.taps, id)
	return err
}

func (f *fakeVMM) Devices(context.Context) ([]vmm.Occupied, error) {
	f.broken("Devices")
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.devices), nil
}

func (f *fakeVMM) Next(ctx context.Context) (vmm.Event, error) {
	f.broken("Next")
	select {
	case e := <-f.events:
		return e, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

func (f *fakeVMM) Slots() int            { return f.slots }
func (f *fakeVMM) PersistentTAPs() bool  { return false }
func (f *fakeVMM) Done() <-chan struct{} { return f.done }
func (f *fakeVMM) Err() error            { return nil }
func (f *fakeVMM) Close() error          { return nil }
