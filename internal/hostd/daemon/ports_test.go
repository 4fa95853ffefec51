package daemon

import (
	"log/slog"
	"sync"
	"testing"
)

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
	l.do(func() error { return h.guard("u1n1-1", "0a:00:01:01:00:01", nil, false) })
	close(guarded)
	wg.Wait()
	if drops := h.drops(); drops["mac"] != 0 || len(drops) == 0 {
		t.Errorf("drops are %v, want every reason with 0", drops)
	}
}
