package domains

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"unnest.io/unnest/internal/measure/collocation"
	"unnest.io/unnest/internal/measure/machines/cgroup"
	"unnest.io/unnest/internal/measure/workload"
	"unnest.io/unnest/internal/testbed/lab"
	"unnest.io/unnest/internal/testbed/place"
)

// counter counts for domains from its call until the call of stop.
type counter func(groups map[string]*cgroup.Group) (stop stopCounting, err error)

// stopCounting ends a count. It returns values by the names of the domains, and values of the whole host by ofHost.
type stopCounting func() (map[string][]workload.Value, error)

// startCounting starts all counters. The function that it returns stops them, the last one first.
func startCounting(counters []counter, groups map[string]*cgroup.Group) (stopCounting, error) {
	var stops []stopCounting
	stop := func() (map[string][]workload.Value, error) {
		all := map[string][]workload.Value{}
		var errs []error
		for _, stop := range slices.Backward(stops) {
			values, err := stop()
			errs = append(errs, err)
			for name, v := range values {
				all[name] = append(all[name], v...)
			}
		}
		return all, errors.Join(errs...)
	}
	for _, start := range counters {
		one, err := start(groups)
		if err != nil {
			_, stopErr := stop()
			return nil, errors.Join(err, stopErr)
		}
		stops = append(stops, one)
	}
	return stop, nil
}

// countTimes counts the CPU time of control groups, as the kernel accounts it to them.
func countTimes(groups map[string]*cgroup.Group) (stopCounting, error) {
	before, begin := map[string]time.Duration{}, time.Now()
	var err error
	for name, g := range groups {
		if before[name], err = g.Time(); err != nil {
			return nil, err
		}
	}
	return func() (map[string][]workload.Value, error) {
		window, all := time.Since(begin), map[string][]workload.Value{}
		for name, g := range groups {
			now, err := g.Time()
			if err != nil {
				return nil, err
			}
			all[name] = []workload.Value{{Metric: collocation.Utilisation, Value: 100 * (now - before[name]).Seconds() / window.Seconds()}}
		}
		return all, nil
	}, nil
}

// conntrackFile has the counters of the tracking of connections in a network namespace.
const conntrackFile = "/proc/thread-self/net/stat/nf_conntrack"

// dropped counts the packets that the tracking of connections dropped since the boot, on this
// host and in the VMs with containers. Where it has no room for a connection, clients wait in vain.
func (s *Study) dropped(ctx context.Context, here []*guestDomain) (sum float64, err error) {
	var host []byte
	err = lab.Do(s.Lab.HostNS(), func() (err error) { host, err = os.ReadFile(conntrackFile); return err })
	if err == nil {
		sum, err = parseDrops(host)
	}
	if err != nil {
		return 0, fmt.Errorf("read the tracking of connections: %w", err)
	}
	for _, d := range here {
		if _, contained := d.kind.Stack().Engine(); !contained || d.machine.Node == nil {
			continue
		}
		inside, err := place.Output(ctx, d.machine.Place, "cat", "/proc/net/stat/nf_conntrack")
		if err != nil {
			return 0, d.machine.Explain(err)
		}
		n, err := parseDrops(inside)
		if err != nil {
			return 0, fmt.Errorf("read the tracking of connections of %s: %w", d.name, err)
		}
		sum += n
	}
	return sum, nil
}

// parseDrops adds up the columns drop and early_drop of /proc/net/stat/nf_conntrack, a line for
// each processor with hexadecimal numbers.
func parseDrops(table []byte) (sum float64, err error) {
	lines := strings.Split(strings.TrimSpace(string(table)), "\n")
	columns := strings.Fields(lines[0])
	for _, name := range []string{"drop", "early_drop"} {
		column := slices.Index(columns, name)
		if column < 0 {
			return 0, fmt.Errorf("no column %s in %q", name, lines[0])
		}
		for _, line := range lines[1:] {
			fields := strings.Fields(line)
			if len(fields) <= column {
				return 0, fmt.Errorf("line %q has no column %s", line, name)
			}
			n, err := strconv.ParseUint(fields[column], 16, 64)
			if err != nil {
				return 0, err
			}
			sum += float64(n)
		}
	}
	return sum, nil
}
