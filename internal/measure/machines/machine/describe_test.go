package machine

import (
	"testing"
)

// The CPU times of this host never decrease.
func TestHostTimes(t *testing.T) {
	before, err := HostTimes()
	if err != nil {
		t.Fatal(err)
	}
	after, err := HostTimes()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := after.Sub(before); err != nil || before.Breakdown().Total() == 0 {
		t.Errorf("from %+v to %+v: %v", before, after, err)
	}
}

func TestDescribeHost(t *testing.T) {
	m, err := DescribeHost(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if m.Name == "" || m.Kernel == "" || m.Arch == "" || m.CPU == "" || m.VCPUs < 1 || m.Memory < 1<<28 {
		t.Errorf("got %+v", m)
	}
}
