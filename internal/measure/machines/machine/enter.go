package machine

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"unnest.io/unnest/internal/testbed/place"
)

// Enter returns the container called name as a place whose commands start at once.
// The engine's exec command costs an emulated guest a second or more of CPU time, for
// clients while they are measured.
//
// A command runs in the namespaces and control groups of the container. It differs in
// two things from a command that the engine starts: it has no seccomp filter, and it
// keeps all of root's capabilities. This holds for the servers and the clients of every
// pod, so the cost of the filter is in no figure of a pod. Containers that are loaded
// from outside are entered by the engine, with the filter.
func Enter(ctx context.Context, m *Machine, name string) (place.Place, error) {
	const find = `pid=$("$2" inspect --format '{{.State.Pid}}' "$1") && echo "$pid" && while IFS=: read -r _ hierarchy path; do
	for root in "/sys/fs/cgroup/${hierarchy#name=}" /sys/fs/cgroup/unified; do
		[ ! -e "$root$path/cgroup.procs" ] || { echo "$root$path"; break; }
	done
done <"/proc/$pid/cgroup"`
	out, err := place.Output(ctx, m.Place, "sh", "-c", find, "find", name, m.Engine())
	if err != nil {
		return nil, fmt.Errorf("find container %s: %w", name, err)
	}
	found := strings.Fields(string(out)) // its process ID, then its control group in each hierarchy
	if len(found) < 2 || found[0] == "0" {
		err := fmt.Errorf("find container %s: its process and control groups are %q", name, out)
		return nil, WithContainerEnd(ctx, place.Container{Place: m.Place, Engine: m.Engine(), Name: name}, err)
	}
	const join = `set -e; pid=$1; shift; while [ "$1" != -- ]; do echo $$ >"$1/cgroup.procs"; shift; done; exec nsenter --all --target "$pid" "$@"`
	return place.Within{
		Place: m.Place, Enter: slices.Concat([]string{"sh", "-c", join, "enter"}, found, []string{"--"}),
		Name: fmt.Sprintf("container %s in %s", name, m.Place),
	}, nil
}
