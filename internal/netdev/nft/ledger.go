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
	var made uint32
	l.count(1, 0)
	defer func() { l.count(-1, made) }()
	err := f()
	if err == nil {
		made = 1
	}
	return err
}

func (l *ledger) count(busy int, done uint32) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.busy += busy
	l.done += done
}

// counted returns the number of transactions, and whether none is under way.
func (l *ledger) counted() (done uint32, idle bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.done, l.busy == 0
}
