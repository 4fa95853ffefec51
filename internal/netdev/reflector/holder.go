package reflector

import (
	"errors"

	"golang.org/x/sys/unix"

	"unnest.io/unnest/internal/netdev/tap"
)

// device is a TAP in a network namespace.
type device struct {
	name string
	ns   uint64 // inode
}

// takeFrom returns a descriptor of the queue that a process has of a TAP, or -1 when
// it has none or has ended. It prefers an attached queue: a detached one is what an
// interrupted recovery or Leave has left.
func takeFrom(pid int, d device) (queue, error) {
	fds, err := tap.Descriptors(pid, d.name)
	if err != nil {
		return -1, err
	}
	for _, attached := range []bool{true, false} {
		for _, fd := range fds {
			if q, err := duplicate(pid, fd, d, attached); q >= 0 || err != nil {
				return q, err
			}
		}
	}
	return -1, nil
}

// duplicate duplicates a process's descriptor if it is a queue of the device that is
// attached or not, as given. Else it returns -1.
func duplicate(pid, fd int, d device, attached bool) (queue, error) {
	copied, err := tap.Duplicate(pid, fd)
	if copied < 0 || err != nil {
		return -1, err
	}
	q := queue(copied)
	name, is, err := q.device()
	if err == nil && name == d.name && is == attached {
		var ns uint64
		if ns, err = q.inode(); err == nil && ns == d.ns {
			return q, nil
		}
	}
	if errors.Is(err, unix.EBADFD) {
		err = nil // not a TAP any more
	}
	return -1, errors.Join(err, q.close())
}
