package bridge

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"

	"unnest.io/unnest/internal/netdev/nft"
)

// Connection tracking keeps the unfinished datagrams of all tenants in one memory for each family, before any other rule sees a fragment.
// When it is full, the kernel drops all fragments of that family. A fragment of up to 1,500 bytes takes up to 2.5 KB until its datagram is
// finished, and counts once; a longer one counts more often. Package antispoof drops what nft.LargeFragments says.
//
// IPv4: fragments pass at any rate until unfinished ones take crowdedMemory. Then, and for calmTime after that, each bridge may send
// fragmentRate per second, and as many at once. There is room for eight such bridges, and for the host's own fragments.
//
// IPv6: the kernel does not tell the memory, so limits always hold. Each bridge may send fragmentRate6 per second, and all bridges together
// commonRate6 beyond that. A fragment waits for fragmentTime6, so there is room for eight hostile bridges.
const (
	fragmentMemory                = 256 << 20 // bytes
	crowdedMemory                 = fragmentMemory / 4
	calmTime                      = time.Minute
	fragmentTime, fragmentTime6   = 5, 1 // seconds, at least 1; the fragments of a datagram follow each other at once
	fragmentRate                  = 2000
	fragmentRate6, fragmentBurst6 = 5000, 1000
	commonRate6, commonBurst6     = 40000, 4000
)

// fragmentSettings are of the memory for unfinished datagrams. The kernel has those of IPv6 once there are rules.
func fragmentSettings() []setting {
	more := func(old int) bool { return old >= fragmentMemory }
	less := func(most int) func(int) bool { return func(old int) bool { return old <= most } }
	return []setting{
		{file: "net/ipv4/ipfrag_high_thresh", value: strconv.Itoa(fragmentMemory), keep: more},
		{file: "net/ipv4/ipfrag_time", value: strconv.Itoa(fragmentTime), keep: less(fragmentTime)},
		{file: "net/netfilter/nf_conntrack_frag6_high_thresh", value: strconv.Itoa(fragmentMemory), keep: more},
		{file: "net/netfilter/nf_conntrack_frag6_timeout", value: strconv.Itoa(fragmentTime6), keep: less(fragmentTime6)},
	}
}

// ShareFragments begins to limit the IPv4 fragments of each bridge if unfinished datagrams take much memory, and ends it
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
	if len(f.networks) > 0 { // the rest of the table, and what it counts, stays
		err = f.transact(f.owner.Mark, func(c *nftables.Conn) error {
			f.addFragments(c)
			return nil
		})
	}
	if err != nil {
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
	var datagrams, memory int
	_, line, _ := strings.Cut(string(content), "FRAG: ")
	if _, err := fmt.Sscanf(line, "inuse %d memory %d", &datagrams, &memory); err != nil {
		return 0, fmt.Errorf("read %s: memory of fragments: %w", file, err)
	}
	return memory, nil
}

// addFragments adds the chains that drop fragments beyond the shares of their bridges; those of IPv4 only while f.limited. A fragment passes the
// chain of the share once, and once more for each of nft.FragmentSteps that its length exceeds.
func (f *Filter) addFragments(c *nftables.Conn) {
	var all [][]expr.Any
	add := func(name string, is []expr.Any, over ...[]expr.Any) {
		f.addRules(c, "share-"+name, [][]expr.Any{nft.Rule(slices.Concat(over...), drop("fragments"))})
		var count [][]expr.Any
		for _, size := range append([]int{0}, nft.FragmentSteps...) {
			count = append(count, nft.Rule(nft.Longer(size), nft.Jump("share-"+name)))
		}
		f.addRules(c, "count-"+name, count)
		all = append(all, nft.Rule(is, nft.In(f.bridges, nft.InInterface), nft.Goto("count-"+name)))
	}
	if f.limited {
		add("ipv4", nft.Rule(ipv4, nft.Fragments4.Any), nft.Update(f.guard.fragment4, nft.Over(fragmentRate, fragmentRate), nft.InInterface))
	}
	add("ipv6", nft.Rule(ipv6, nft.Fragments6.Any), nft.Update(f.guard.fragment6, nft.Over(fragmentRate6, fragmentBurst6), nft.InInterface), nft.Over(commonRate6, commonBurst6))
	f.addChain(c, "fragments", nftables.ChainTypeFilter, nftables.ChainHookPrerouting, beforeDefragmentation, all...)
}

// beforeDefragmentation is NF_IP_PRI_RAW_BEFORE_DEFRAG of linux/netfilter_ipv4.h.
var beforeDefragmentation = nftables.ChainPriorityRef(-450)
