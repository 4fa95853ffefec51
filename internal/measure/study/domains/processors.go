package domains

import (
	"fmt"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// splitProcessors divides the processors that this process may use: the domains get all but a
// quarter, which the load generators get. Both are lists such as "0,1". With one processor, both
// have it.
func splitProcessors() (domains, generators string, n int, err error) {
	var set unix.CPUSet
	if err := unix.SchedGetaffinity(0, &set); err != nil {
		return "", "", 0, fmt.Errorf("find the processors of this process: %w", err)
	}
	var all []string
	for i := 0; len(all) < set.Count(); i++ {
		if set.IsSet(i) {
			all = append(all, strconv.Itoa(i))
		}
	}
	apart := max(1, len(all)/4)
	if len(all) == 1 {
		return all[0], all[0], 1, nil
	}
	return strings.Join(all[:len(all)-apart], ","), strings.Join(all[len(all)-apart:], ","), len(all) - apart, nil
}
