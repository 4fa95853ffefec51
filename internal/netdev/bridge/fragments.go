package bridge

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"os"
	"strconv"
	"time"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"

	"unnest.io/unnest/internal/netdev/nft"
)

// Unfinished datagrams of all tenants wait in one memory of the namespace, which connection tracking fills before any
// other rule sees a fragment. The kernel drops all fragments when it is full. Datagrams that are finished take no memory, so
// fragments pass at any rate. While unfinished IPv4 datagrams take crowdedMemory or more, and for calmTime after that, a
// tenant's bridge has a share: fragmentRate per second and as many at once wait for fragmentTime, each in 2.5 KB
// or less. The memory has room for eight such shares, and for the host's own. The kernel does not tell the
// memory of IPv6.
const (
	fragmentRate   = 2000
	fragmentTime   = 5         // seconds; the fragments of a datagram follow each other at once
	fragmentMemory = 256 << 20 // bytes
	crowdedMemory  = fragmentMemory / 4
	calmTime       = time.Minute
)

// fragmentSettings are of the memory for unfinished datagrams. The kernel has those of IPv6 once there are rules.
func fragmentSettings() []setting {
	more, less := func(old int) bool { return old >= fragmentMemory }, func(old int) bool { return old <= fragmentTime }
	return []setting{
		{file: "net/ipv4/ipfrag_high_thresh", value: strconv.Itoa(fragmentMemory), keep: more},
		{file: "net/ipv4/ipfrag_time", value: strconv.Itoa(fragmentTime), keep: less},
		{file: "net/netfilter/nf_conntrack_frag6_high_thresh", value: strconv.Itoa(fragmentMemory), keep: more},
		{file: "net/netfilter/nf_conntrack_frag6_timeout", value: strconv.Itoa(fragmentTime), keep: less},
	}
}

// ShareFragments begins to limit the fragments of each bridge if unfinished datagrams take much memory, and ends it
// a minute after they did. The calling thread must be in the network namespace of f. limited says whether fragments are limited
// now, changed whether that has changed. Call it every second.
func (f *Filter) ShareFragments(now time.Time) (limited, changed bool, err error) {
	used, err := unfinished()
	if err != nil {
		return false, false, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if used >= crowdedMemory {
		f.crowded = now
	}
	limited = !f.crowded.IsZero() && now.Sub(f.crowded) <= calmTime
	if limited == f.limited {
		return limited, false, nil
	}
	f.limited = limited
	if err := f.apply(f.networks); err != nil {
		f.limited = !limited // the next call tries again
		return f.limited, false, err
	}
	return limited, true, nil
}

// unfinished returns the bytes that unfinished IPv4 datagrams take in the calling thread's network namespace.
func unfinished() (int, error) {
	const file = "/proc/thread-self/net/sockstat"
	content, err := os.ReadFile(file)
	if err != nil {
		return 0, err
	}
	for lines := bufio.NewScanner(bytes.NewReader(content)); lines.Scan(); {
		var datagrams, memory int
		if n, _ := fmt.Sscanf(lines.Text(), "FRAG: inuse %d memory %d", &datagrams, &memory); n == 2 {
			return memory, nil
		}
	}
	return 0, errors.New("read " + file + ": it has no memory of fragments")
}

// fragmentRules drop fragments beyond the share of their bridge, while f.limited.
func (f *Filter) fragmentRules() [][]expr.Any {
	if !f.limited {
		return nil
	}
	fromBridge := nft.In(f.bridges, nft.InInterface)
	tooMany := nft.Rule(nft.Update(f.guard.fragments, nft.Over(fragmentRate, fragmentRate), nft.InInterface), drop("fragments"))
	return [][]expr.Any{
		nft.Rule(fromBridge, ipv4, nft.NotMasked(fragment4, []byte{0x3f, 0xff}, []byte{0, 0}), tooMany),
		nft.Rule(fromBridge, ipv6, nft.Fragments6.First, tooMany),
		nft.Rule(fromBridge, ipv6, nft.Fragments6.Later, tooMany),
	}
}

// beforeDefragmentation is NF_IP_PRI_RAW_BEFORE_DEFRAG of linux/netfilter_ipv4.h.
var beforeDefragmentation = nftables.ChainPriorityRef(-450)
