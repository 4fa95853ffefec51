package ipam

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"time"
)

// Errors, besides *ExhaustedError and *TakenError.
var (
	// ErrNoRange says that the pool has no ranges to allocate from.
	ErrNoRange = errors.New("no address range is configured")
	// ErrUnusable says that a claimed address is not a host's in one of the subnets,
	// or has a wrong prefix length.
	ErrUnusable = errors.New("not usable")
)

// TakenError says that a claimed address is taken.
type TakenError struct {
	Addr   netip.Addr
	Reason string // "held by OWNER", or the reason given to Reserve
}

// Error gives the address, the reason and the fix.
func (e *TakenError) Error() string {
	return fmt.Sprintf("address %s is %s: choose another", e.Addr, e.Reason)
}

// ExhaustedError says that the ranges of one family have no free address.
type ExhaustedError struct {
	Ranges  []Range // of the family
	InUse   int     // held by owners
	Cooling int     // released a short time ago
	// Wait is the time until a cooling address is free, 0 if there is none.
	Wait time.Duration
}

// Error gives the ranges, the counts and the fix.
func (e *ExhaustedError) Error() string {
	var all []string
	for _, r := range e.Ranges {
		first, last := r.bounds()
		all = append(all, fmt.Sprintf("%s-%s", first, last))
	}
	fix := "remove pods or widen the range"
	if e.Cooling > 0 {
		fix = fmt.Sprintf("the next is free in %s", e.Wait.Round(time.Millisecond))
	}
	return fmt.Sprintf("no free %s address in %s (%d in use, %d cooling down): %s",
		e.Ranges[0].family(), strings.Join(all, ", "), e.InUse, e.Cooling, fix)
}
