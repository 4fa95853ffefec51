package ports

import (
	"errors"
	"maps"
	"testing"
)

// A guest's total never falls, though the kernel forgets ports and restored filters begin
// at 0.
func TestDropsOfGuests(t *testing.T) {
	var p portDrops
	owner := func(port string) string {
		return map[string]string{"u1n1-1": "node1", "u1n2-1": "node1", "u2n1-1": "node2"}[port]
	}
	failed := errors.New("netlink")
	steps := []struct {
		counts map[string]uint64
		want   map[string]uint64 // nil: counts cannot be read
	}{
		{map[string]uint64{"u1n1-1": 5, "u2n1-1": 1, "strange": 9}, map[string]uint64{"node1": 5, "node2": 1}},
		{map[string]uint64{"u1n1-1": 7, "u1n2-1": 1, "u2n1-1": 1}, map[string]uint64{"node1": 8, "node2": 1}},
		{nil, nil},
		{map[string]uint64{"u1n2-1": 2}, map[string]uint64{"node1": 9, "node2": 1}},               // u1n1-1 has gone
		{map[string]uint64{"u1n1-1": 3, "u1n2-1": 1}, map[string]uint64{"node1": 13, "node2": 1}}, // both began again
	}
	for i, s := range steps {
		got, err := p.add(func() (map[string]uint64, error) {
			if s.want == nil {
				return nil, failed
			}
			return s.counts, nil
		}, owner)
		if !maps.Equal(got, s.want) || (err != nil) != (s.want == nil) {
			t.Errorf("step %d: got %v and %v, want %v", i, got, err, s.want)
		}
	}
	p.forget("node1")
	if got, _ := p.add(func() (map[string]uint64, error) { return nil, nil }, owner); len(got) != 1 {
		t.Errorf("after node1 was forgotten: %v", got)
	}
}
