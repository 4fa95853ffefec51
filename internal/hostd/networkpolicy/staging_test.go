package networkpolicy

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"unnest.io/unnest/internal/hostapi/hostdpb"
	"unnest.io/unnest/internal/hostapi/policylimit"
)

// stagedPod returns the policy of a pod that allows peers to connect to its ports 80 to 90.
func stagedPod(pod string, peers ...string) *hostdpb.PodPolicy {
	return &hostdpb.PodPolicy{Pod: pod, Egress: &hostdpb.PolicyDirection{}, Ingress: &hostdpb.PolicyDirection{Allow: []*hostdpb.PolicyRule{{
		Peers: peers, Services: []*hostdpb.PolicyService{{Protocol: hostdpb.Protocol_PROTOCOL_TCP, First: 80, Last: 90}},
	}}}}
}

// A request that is not as described changes nothing, and names what is wrong.
func TestPolicyRefused(t *testing.T) {
	service := func(p hostdpb.Protocol, first, last uint32) *hostdpb.PodPolicy {
		return &hostdpb.PodPolicy{Pod: "a", Ingress: &hostdpb.PolicyDirection{Allow: []*hostdpb.PolicyRule{{
			Peers: []string{"0.0.0.0/0"}, Services: []*hostdpb.PolicyService{{Protocol: p, First: first, Last: last}},
		}}}}
	}
	for want, r := range map[string]*hostdpb.ApplyRequest{
		`pod "":`:                              {Pod: &hostdpb.PodPolicy{}},
		`pod "a b":`:                           {Pod: &hostdpb.PodPolicy{Pod: "a b"}},
		`address "10.0.0.1/8"`:                 {Pod: &hostdpb.PodPolicy{Pod: "a", Addresses: []string{"10.0.0.1/8"}}},
		"17 addresses":                         {Pod: &hostdpb.PodPolicy{Pod: "a", Addresses: make([]string, 17)}},
		`peer: addresses "10.0.0.1"`:           {Pod: stagedPod("a", "10.0.0.1")},
		"ports 2 to 1":                         {Pod: service(hostdpb.Protocol_PROTOCOL_TCP, 2, 1)},
		"ports 1 to 65536":                     {Pod: service(hostdpb.Protocol_PROTOCOL_TCP, 1, 65536)},
		"protocol 0":                           {Pod: service(0, 1, 2)},
		`more of pod "a"`:                      {More: &hostdpb.PodPolicy{Pod: "a"}},
		"16385 pods with 0 peers and services": {Pod: &hostdpb.PodPolicy{Pod: "a"}},
	} {
		s := NewStaging(policylimit.MaxStreamMemory)
		if strings.HasPrefix(want, "16385") {
			for i := range policylimit.Pods {
				s.pods[fmt.Sprint(i)] = podRules{}
			}
		}
		if err := s.Add(r); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want an error with %s", err, want)
		}
	}
}

// The size of a stream follows what comes, is replaced and goes: 128 bytes for a rule, 48 for
// a range, 16 for a service.
func TestPolicyMemoryIsCounted(t *testing.T) {
	s := NewStaging(policylimit.MaxStreamMemory)
	for i, step := range []struct {
		r    *hostdpb.ApplyRequest
		want int
	}{
		{&hostdpb.ApplyRequest{Pod: stagedPod("a", "10.0.0.1/32", "10.0.0.3/32")}, 240},
		{&hostdpb.ApplyRequest{More: stagedPod("a", "10.0.0.3/32")}, 432},
		{&hostdpb.ApplyRequest{Pod: stagedPod("b", "10.0.0.0/8", "10.0.0.1/32")}, 624},
		{&hostdpb.ApplyRequest{Pod: stagedPod("a", "10.0.0.1/32")}, 384},
		{&hostdpb.ApplyRequest{Remove: "b"}, 192},
		{&hostdpb.ApplyRequest{Remove: "b"}, 192},
	} {
		if err := s.Add(step.r); err != nil || s.memory != step.want {
			t.Errorf("step %d: %d bytes, error %v, want %d", i, s.memory, err, step.want)
		}
	}
}

// A namespace does not get another one's peers replaced by peers of its own: four ranges of IPv4 have the bytes of
// one range of IPv6.
func TestAttackPeersOfOtherFamily(t *testing.T) {
	s := NewStaging(policylimit.MaxStreamMemory)
	for _, p := range []*hostdpb.PodPolicy{
		stagedPod("hostile/a", "a00:1:a00:1:a00:3:a00:3-a00:5:a00:5:a00:7:a00:7"),
		stagedPod("victim/b", "10.0.0.1/32", "10.0.0.3/32", "10.0.0.5/32", "10.0.0.7/32"),
	} {
		if err := s.Add(&hostdpb.ApplyRequest{Pod: p}); err != nil {
			t.Fatal(err)
		}
	}
	for pod, want := range map[string]int{"hostile/a": 1, "victim/b": 4} {
		if got := s.pods[pod].Ingress.Allow[0].Peers; len(got) != want {
			t.Errorf("pod %s has the peers %v, want %d", pod, got, want)
		}
	}
}

// However many tenants there are, what their clients may say fits into a quarter of the daemon's memory, also while it is replaced. A
// client is told its part, and has a stream that says more ended.
func TestAttackMemoryOfManyTenants(t *testing.T) {
	p := New(t.TempDir(), nil)
	for tenants := 1; tenants <= 1000; tenants++ {
		name := fmt.Sprint(tenants)
		p.tenants[name] = &tenant{name: name}
		if all := 2 * tenants * p.StreamMemory(); all > 256<<20 {
			t.Fatalf("%d tenants may say %d bytes at once", tenants, all)
		}
	}
	session, err := p.Begin("7")
	if err != nil {
		t.Fatal(err)
	}
	if told := p.TakeOwnership(session).GetMemory(); told == 0 || told != uint64(p.StreamMemory()) {
		t.Errorf("told %d bytes, want %d", told, p.StreamMemory())
	}
	s := NewStaging(p.StreamMemory())
	large := podWith("a", "p1", 1, p.StreamMemory()/policylimit.RangeMemory+policylimit.PodMemory)
	if err := s.Add(&hostdpb.ApplyRequest{Pod: large}); err == nil {
		t.Errorf("a stream of %d bytes is not ended", s.memory)
	}
}

// A pod may come in thousands of requests: each takes as long as the first one. Further rules of a direction that is not
// isolated do not count.
func TestAttackPodInManyRequests(t *testing.T) {
	s, peers := NewStaging(policylimit.MaxStreamMemory), make([]string, 100)
	if err := s.Add(&hostdpb.ApplyRequest{Pod: stagedPod("a")}); err != nil {
		t.Fatal(err)
	}
	begin := processorTime(t)
	const requests = 2000
	for i := range requests {
		for j := range peers {
			peers[j] = fmt.Sprintf("10.%d.%d.%d/32", i/256, i%256, 2*j)
		}
		more := stagedPod("a", peers...)
		more.Egress.Allow = more.Ingress.Allow[:0]
		if err := s.Add(&hostdpb.ApplyRequest{More: more}); err != nil {
			t.Fatal(err)
		}
	}
	// It takes 0.2 s. If each request looked at those before it, 10 s.
	if took := processorTime(t) - begin; took > 3*time.Second {
		t.Errorf("%d requests took %v of processor time", requests, took)
	}
	if want := 1 + requests; len(s.pods["a"].rules()) != want {
		t.Errorf("got %d rules, want %d", len(s.pods["a"].rules()), want)
	}
	s.remove("a")
	if s.memory != 0 || s.peers != 0 || len(s.shared) > 0 {
		t.Errorf("%d bytes, %d peers and %d sets of them are left", s.memory, s.peers, len(s.shared))
	}
}

func processorTime(t *testing.T) time.Duration {
	var used unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &used); err != nil {
		t.Fatal(err)
	}
	return time.Duration(used.Utime.Nano())
}
