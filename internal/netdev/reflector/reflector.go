// Package reflector is the host's side of Hostlo (Bacou et al., section 4): a
// loopback that the fractions of one pod share, each on a VM of its own.
//
// A segment is one TAP with a queue for each fraction. The fraction's VM gets the
// queue's descriptor as the back end of a NIC. An eBPF program at the TAP's ingress
// reflects each frame to the queues of other fractions; a second program tells the
// TAP the queue of each frame. Neither the kernel nor QEMU is patched, and no frame
// reaches the host's network stack. The programs check a frame's source address,
// keep it in its segment, and limit broadcasts.
//
// The guest's side of the loopback, and the choice of a pod's segment and its
// members, do not belong here. Functions that make, find or remove a TAP or a queue
// work on the network namespace of the calling thread.
package reflector

import (
	"cmp"
	"errors"
	"fmt"
	"time"

	"github.com/cilium/ebpf/rlimit"
	"golang.org/x/sys/unix"
)

//go:generate go tool bpf2go -target bpfel -type counters reflector bpf/reflector.c -- -O2 -Wall -Wextra -Werror -idirafter /usr/include/x86_64-linux-gnu -idirafter /usr/include/aarch64-linux-gnu

// Mode is how a segment reflects.
type Mode string

// The modes.
const (
	// Unicast sends a frame to the fraction with its destination address, and a
	// broadcast to all fractions but its sender.
	Unicast Mode = "unicast"
	// Plain sends every frame to every fraction including its sender, as the TAP of
	// the paper does.
	Plain Mode = "plain"
)

// Limit is the number of frames that each fraction may broadcast: a client's first
// packet to a port is a broadcast. Other frames are not limited, because the VM
// itself pays for their reflection.
type Limit struct {
	Rate  uint32 // per second; 0: DefaultRate
	Burst uint32 // 0: DefaultBurst
}

// Defaults of a Limit.
const (
	DefaultRate  = 20_000
	DefaultBurst = 20_000
)

// Options describe a segment.
type Options struct {
	Name  string // of the TAP, at most 15 bytes
	Mode  Mode   // "": Unicast
	Limit Limit
}

// complete fills in defaults and checks the options.
func (o *Options) complete() error {
	o.Mode = cmp.Or(o.Mode, Unicast)
	o.Limit.Rate = cmp.Or(o.Limit.Rate, DefaultRate)
	o.Limit.Burst = cmp.Or(o.Limit.Burst, DefaultBurst)
	if n := len(o.Name); n == 0 || n >= unix.IFNAMSIZ {
		return fmt.Errorf("name of %d bytes: want 1 to %d", n, unix.IFNAMSIZ-1)
	}
	if o.Mode != Unicast && o.Mode != Plain {
		return fmt.Errorf("mode %q: want %s or %s", o.Mode, Unicast, Plain)
	}
	return nil
}

// load loads the programs, with maps for a segment without fractions.
func load(l Limit) (*reflectorObjects, error) {
	// Kernels before 5.11 count maps and programs against RLIMIT_MEMLOCK.
	if err := rlimit.RemoveMemlock(); err != nil {
		return nil, fmt.Errorf("remove memory lock limit: %w", err)
	}
	spec, err := loadReflector()
	if err != nil {
		return nil, fmt.Errorf("read reflector: %w", err)
	}
	gap := uint64(time.Second) / uint64(l.Rate)
	err = errors.Join(
		spec.Variables["broadcast_gap"].Set(gap),
		spec.Variables["broadcast_burst"].Set(gap*uint64(l.Burst-1)),
	)
	if err != nil {
		return nil, fmt.Errorf("set limit of broadcasts: %w", err)
	}
	var o reflectorObjects
	if err := spec.LoadAndAssign(&o, nil); err != nil {
		return nil, fmt.Errorf("load reflector: %w", err)
	}
	return &o, nil
}
