package reflector

import (
	"fmt"
	"sync"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// After a VMM has changed the offloads, it goes on to change the header alone, of which the
// kernel sends no event: QEMU makes a NIC of the queue. The guard then looks this often, for
// this long.
const (
	settleInterval = time.Millisecond
	settleTime     = 2 * time.Second
)

// guard restores header size and offloads of the TAP as soon as a VMM changes them: QEMU does
// when it takes a queue, and QEMU 10 also when a guest resets its NIC, as it does before it
// gives the NIC up. Until then the frames of all fractions are lost. The guard owns q, any
// queue of the TAP, until stop has returned. If the kernel's events cannot be read any more,
// only RestoreOffloads restores them.
func guard(q queue, index int) (stop func(), err error) {
	done := make(chan struct{})
	updates := make(chan netlink.LinkUpdate, 64)
	err = netlink.LinkSubscribeWithOptions(updates, done, netlink.LinkSubscribeOptions{ReceiveBufferSize: 1 << 20})
	if err != nil {
		return nil, fmt.Errorf("watch TAP: %w", err)
	}
	var running sync.WaitGroup
	running.Go(func() {
		defer func() { _ = q.close() }()
		var settled time.Time
		look := time.NewTicker(settleInterval)
		defer look.Stop()
		look.Stop()
		for {
			select {
			case <-done:
				return
			case u, ok := <-updates:
				if !ok {
					return
				}
				if int(u.Index) != index || u.Header.Type != unix.RTM_NEWLINK {
					continue
				}
				_ = q.setOffloads() // RestoreOffloads tries again
				settled = time.Now().Add(settleTime)
				look.Reset(settleInterval)
			case now := <-look.C:
				if size, err := unix.IoctlGetInt(int(q), unix.TUNGETVNETHDRSZ); err == nil && size != headerSize {
					_ = q.setOffloads()
				}
				if now.After(settled) {
					look.Stop()
				}
			}
		}
	})
	return func() {
		close(done)
		running.Wait()
		go func() {
			for range updates { // until the subscription has ended
			}
		}()
	}, nil
}
