package link

import (
	"context"
	"errors"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Event says that a link is there or has changed, or that it was deleted.
type Event struct {
	Index   int
	Name    string
	Deleted bool
}

// Follow passes an event for each link that exists, and then for each change, until ctx
// ends. It returns an error when the kernel's events cannot be read any more.
func Follow(ctx context.Context, f func(Event)) error {
	done := make(chan struct{})
	defer close(done)
	updates, failures := make(chan netlink.LinkUpdate, 64), make(chan error, 1)
	err := netlink.LinkSubscribeWithOptions(updates, done, netlink.LinkSubscribeOptions{
		ListExisting: true,
		ErrorCallback: func(err error) { // before it closes updates, and when done is closed
			select {
			case failures <- err:
			default: // the first one says why
			}
		},
	})
	if err != nil {
		return err
	}
	for {
		select {
		case <-ctx.Done():
			return nil
		case u, ok := <-updates:
			if !ok {
				return firstOf(failures)
			}
			f(Event{Index: int(u.Index), Name: u.Attrs().Name, Deleted: u.Header.Type == unix.RTM_DELLINK})
		}
	}
}

func firstOf(failures <-chan error) error {
	select {
	case err := <-failures:
		return err
	default:
		return errors.New("the kernel sends no more events")
	}
}
