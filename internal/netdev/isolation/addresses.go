package isolation

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"

	"github.com/google/nftables"
	"golang.org/x/sys/unix"
)

// Addresses returns the addresses with rules of their own, by interface, in the filter that an
// earlier process has left in the calling thread's network namespace.
func Addresses() (map[string][]netip.Addr, error) {
	c, err := nftables.New()
	if err != nil {
		return nil, fmt.Errorf("open nftables: %w", err)
	}
	found := map[string][]netip.Addr{}
	for _, m := range egressOf {
		elements, err := c.GetSetElements(m)
		if err != nil && !errors.Is(err, unix.ENOENT) {
			return nil, fmt.Errorf("list map %s of packet filter: %w", m.Name, err)
		}
		for _, e := range elements {
			if len(e.Key) == int(m.KeyType.Bytes) {
				name, _, _ := strings.Cut(string(e.Key[:unix.IFNAMSIZ]), "\x00")
				a, _ := netip.AddrFromSlice(e.Key[unix.IFNAMSIZ:])
				found[name] = append(found[name], a)
			}
		}
	}
	return found, nil
}
