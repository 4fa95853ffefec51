package daemon

import (
	"errors"
	"log/slog"
	"sync"
	"testing"

	"unnest/internal/netdev/antispoof"
)

// A filter that could not be opened is opened again for the next port.
func TestFilterIsOpenedAgain(t *testing.T) {
	tries, failed := 0, errors.New("netlink: no buffer space available")
	h := &ports{log: slog.New(slog.DiscardHandler), open: func() (*antispoof.Table, error) { tries++; return nil, failed }}
	for want := 1; want <= 3; want++ {
		if err := h.guard("u1n1-1", "0a:00:01:00:01:01", nil, false, 0); !errors.Is(err, failed) || tries != want {
			t.Errorf("port %d: got %v after %d tries, want %v after %d", want, err, tries, failed, want)
		}
	}
}

// The metrics are collected while the first NIC opens the packet filter. The race
// detector finds an access that is not synchronized.
func TestDropsDuringFirstGuard(t *testing.T) {
	l := newLab(t)
	h := &ports{log: slog.New(slog.NewTextHandler(t.Output(), nil))}
	var wg sync.WaitGroup
	started, guarded := make(chan struct{}), make(chan struct{})
	wg.Go(func() {
		h.drops()
		close(started)
		for {
			select {
			case <-guarded:
				return
			default:
				h.drops()
			}
		}
	})
	<-started
	l.do(func() error { return h.guard("u1n1-1", "0a:00:01:01:00:01", nil, false, 0) })
	close(guarded)
	wg.Wait()
	if drops := h.drops(); drops["mac"] != 0 || len(drops) == 0 {
		t.Errorf("drops are %v, want every reason with 0", drops)
	}
}
