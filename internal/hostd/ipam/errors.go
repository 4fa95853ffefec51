package ipam

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"time"
)

// Kinds of errors, to be told apart with errors.Is. Beside them there are
// *ExhaustedError and *TakenError.
var (
	// ErrNoRange refuses Allocate from a pool without ranges.
	ErrNoRange = errors.New("no address range is configured")
	// ErrUnusable refuses to Claim what is no host's address in one of the
	// subnets, or has the wrong prefix length.
	ErrUnusable = errors.New("not usable")
)

// TakenError refuses to Claim an address that is another's.
type TakenError struct {
	Addr   netip.Addr
	Reason string // "held by" its owner, or the reason given to Reserve
}

// Error names the address and whose it is.
func (e *TakenError) Error() string {
	return fmt.Sprintf("address %s is %s: choose another", e.Addr, e.Reason)
}

// ExhaustedError refuses Allocate because the ranges of one family have no free
// address.
type ExhaustedError struct {
	Ranges  []Range // of the family
	InUse   int     // held by owners
	Cooling int     // released a short time ago
	// Wait is the time until the next address is free without a Release; 0 when
	// none is cooling.
	Wait time.Duration
}

// Error gives the ranges, the counts and what helps.
func (e *ExhaustedError) Error() string {
	var all []string
	for _, r := range e.Ranges {
		first, last := r.bounds()
		all = append(all, fmt.Sprintf("%s-%s", first, last))
	}
	mend := "remove pods or widen the range"
	if e.Cooling > 0 {
		mend = fmt.Sprintf("the next is free in %s", e.Wait.Round(time.Millisecond))
	}
	return fmt.Sprintf("no free %s address in %s (%d in use, %d cooling down): %s",
		e.Ranges[0].family(), strings.Join(all, ", "), e.InUse, e.Cooling, mend)
}
