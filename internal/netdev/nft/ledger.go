package nft

import (
	"sync"

	"github.com/vishvananda/netns"
)

// ledger counts the transactions of this process in a network namespace. Each makes the
// kernel's next generation, so a watch that has lost events knows whether others have made one.
type ledger struct {
	mu   sync.Mutex
	busy int // transactions under way
	done uint32
}

var ledgers = struct {
	mu   sync.Mutex
	byNS map[string]*ledger
}{byNS: map[string]*ledger{}}

func ledgerOf(ns netns.NsHandle) *ledger {
	ledgers.mu.Lock()
	defer ledgers.mu.Unlock()
	id := ns.UniqueId()
	if ledgers.byNS[id] == nil {
		ledgers.byNS[id] = &ledger{}
	}
	return ledgers.byNS[id]
}

// transact calls f, which makes a generation unless it fails.
func (l *ledger) transact(f func() error) error {
	l.mu.Lock()
	l.busy++
	l.mu.Unlock()
	err := f()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.busy--
	if err == nil {
		l.done++
	}
	return err
}

// count returns the number of transactions, and whether none is under way.
func (l *ledger) count() (done uint32, idle bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.done, l.busy == 0
}
