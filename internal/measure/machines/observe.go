package machines

import (
	"os"

	"unnest.io/unnest/internal/measure/experiment"
	"unnest.io/unnest/internal/measure/noise"
	"unnest.io/unnest/internal/measure/noise/procfs"
)

// Observe observes this machine, see experiment.Observer. This process and its
// descendants are the experiment. What runs on a host of the user is not seen; its
// hypervisor may even be a process of this machine.
func (b *Set) Observe(e experiment.Execution) (func() (noise.Reading, error), error) {
	if e.Configuration.Stack.Remote() || e.Configuration.Host != "" {
		return func() (noise.Reading, error) { return noise.Reading{}, nil }, nil
	}
	before, err := procfs.Read()
	if err != nil {
		return nil, err
	}
	return func() (noise.Reading, error) {
		after, err := procfs.Read()
		if err != nil {
			return noise.Reading{}, err
		}
		return after.Since(before, os.Getpid())
	}, nil
}
