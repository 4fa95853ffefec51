package experiment

import (
	"strings"
	"testing"
	"time"

	"unnest.io/unnest/experiments"
)

// A run of some cases is resumed with them.
func TestChoose(t *testing.T) {
	file, data, err := experiments.Open("quickstart")
	if err != nil {
		t.Fatal(err)
	}
	s, err := Parse(file, data)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Choose([]string{"tcp_stream", "udp_rr/64"}); err != nil {
		t.Fatal(err)
	}
	again, err := FromRun("run", s.NewRun("r1", 1, time.Unix(1000, 0)))
	if err != nil {
		t.Fatal(err)
	}
	for _, spec := range []*Spec{s, again} {
		var names []string
		for _, c := range spec.Cases {
			names = append(names, c.Name)
		}
		if got := strings.Join(names, " "); got != "udp_rr/64 tcp_stream/1280 tcp_stream/16384" {
			t.Errorf("cases %s", got)
		}
	}
	if err := s.Choose([]string{"tcp_stream", "udp_rr/128"}); err == nil || !strings.Contains(err.Error(), `no case "udp_rr/128": did you mean udp_rr/64?`) {
		t.Errorf("an unknown case: %v", err)
	}
}
