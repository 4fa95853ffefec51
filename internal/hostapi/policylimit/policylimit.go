// Package policylimit says how much the network policies of tenants and their namespaces may
// take on a host. Each limit follows from that of the next layer:
//
//   - The unit of the daemon has 1 GiB of memory (MemoryMax). StreamMemory bounds what the daemon keeps of
//     what the client of one tenant has said; pods share peers. While the daemon replaces that, it
//     holds twice as much. So all tenants take at most a quarter of the unit. The daemon tells a client its limit.
//     The limit holds for streams that begin after the last reload.
//   - StreamPeers bounds what pods do not share: the client sends the peers of each pod, the daemon reads
//     and checks them. 2 Mi take seconds. They are enough for a namespace of 1,400 pods that all allow each other.
//   - The daemon writes what it keeps of the pods here to disk, as JSON, the record of one tenant at a time, with peers that pods share
//     once, and holds the text of one pod, or of all peers, at a time.
//   - The kernel takes a transaction as one message of netlink, of up to nft.SendBuffer (64 MiB). A daemon
//     that starts, or restores the filter, puts the ports of all tenants into one. RuleMessage and
//     RangeMessage are upper bounds of what a rule and a range take of it. TransactionShare, a quarter
//     of the message, is for rules of policies; the rest is for what every port has.
//   - Each element of a transaction is an event of the kernel. Those that do not fit into
//     nft.EventBuffer are lost. This limits nothing, because package nft counts transactions then.
//   - While the kernel takes a transaction, all NICs wait. So the transaction of a change has the rules of
//     one pod, up to PodMessage, or those of several pods that have less together: 1,300 rules, which
//     take about 50 ms. Their peers come before them, in parts.
//   - Tenants share TransactionShare equally: Share.
//   - A policy client refuses namespaces whose rules exceed StreamMemory or StreamPeers, before it
//     sends them. It refuses those that exceed Matches, before it looks for their peers: at first those with too many
//     pairs of a policy and a pod of the namespace, all of whose pods it closes, and those with too many
//     pairs of a selector and a namespace, and then those that select too many pods. Its other namespaces are not held up.
//   - Namespaces of a tenant have no fixed share, because one daemon does not know how many there
//     will be. If they are too large together, Refuse refuses the largest until the others
//     fit. So, of n namespaces, one that takes up to an nth of the tenant's share always fits,
//     whatever the others take.
//   - A policy may take what its namespace may.
//
// The daemon closes the isolated pods of a namespace that is refused: their policies allow
// nothing, instead of what was in force before, which may allow more than the new ones do.
//
// What a policy allows, and how rules are filtered, do not belong here.
package policylimit

import (
	"cmp"
	"maps"
	"slices"
)

const (
	// MaxStreamMemory is StreamMemory of up to eight tenants.
	MaxStreamMemory = 16 << 20
	// StreamPeers is the number of ranges and services in it, each as often as a pod has it.
	StreamPeers = 2 << 20
	// TransactionShare is for the rules of policies of all tenants in one transaction, in bytes.
	TransactionShare = 16 << 20
	// Matches is how many pairs of a selector and a namespace or a pod, or of a port's name and a pod, a policy client
	// looks at, which takes a second, and 200 MB if all match.
	Matches = 4 << 20
	// PodMessage is for the rules of one pod in a transaction, without their peers, in bytes.
	PodMessage = 1 << 20
	// Pods is the number of pods that a policy client may name: PodMemory of each takes 8 MiB.
	Pods = 16384
)

// StreamMemory is for what the policy client of one of some tenants has said, in bytes.
func StreamMemory(tenants int) int { return MaxStreamMemory * 8 / max(8, tenants) }

// What parts of rules take of StreamMemory, in bytes.
const (
	RuleMemory    = 128
	RangeMemory   = 48 // of peers
	ServiceMemory = 16
)

// RulePeers and RuleServices are the numbers of peers and services in a rule of a message; a rule with more is split. They take 49,000 bytes
// if all have the longest text, and the daemon takes messages of 64 KiB.
const (
	RulePeers    = 500
	RuleServices = 700
)

// What each pod has in addition: its name, addresses and node.
const (
	PodMemory = 512 // bytes
	PodPeers  = 8
)

// Size is the size of rules that some pods have.
type Size struct {
	Memory int // upper bound of the bytes of memory that they take
	Peers  int // and services, each as often as a pod has it
}

// Add adds a rule of some pods, which share its peers.
func (s *Size) Add(pods, ranges, services int) {
	times, parts := max(1, (ranges+RulePeers-1)/RulePeers), max(1, (services+RuleServices-1)/RuleServices)
	s.Memory += RangeMemory*ranges + pods*times*(parts*RuleMemory+ServiceMemory*services)
	s.Peers += pods * (parts*ranges + times*services)
}

// Upper bounds of the bytes of a transaction.
const (
	RuleMessage  = 768 // for a rule of the packet filter
	RangeMessage = 96  // for a range of addresses
)

// SetMessage is what a set of peers counts, beside the bytes of its rules and ranges. It bounds the number of sets: for each set that a
// rule names, the kernel looks through the sets of all tenants.
const SetMessage = 16 << 10

// Share returns the share of a tenant, in bytes of a transaction.
func Share(tenants int) int { return TransactionShare / max(1, tenants) }

// Refuse returns the namespaces to refuse, the largest first, so that the others fit
// into a share together. Of namespaces of one size, the last by name is refused first.
func Refuse(sizes map[string]int, share int) (refused []string) {
	total := 0
	for _, size := range sizes {
		total += size
	}
	if total <= share {
		return nil
	}
	names := slices.SortedFunc(maps.Keys(sizes), func(a, b string) int {
		return cmp.Or(cmp.Compare(sizes[b], sizes[a]), cmp.Compare(b, a))
	})
	for _, name := range names {
		if total <= share {
			break
		}
		total -= sizes[name]
		refused = append(refused, name)
	}
	return refused
}
