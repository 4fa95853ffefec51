package experiment

import (
	"slices"
	"strings"
	"testing"
	"time"

	"unnest.io/unnest/internal/measure/stack"
)

const inCluster = `name: cluster
suite: cluster
configurations:
  - {name: node, stack: kubernetes, network: host}
  - {name: pod, stack: kubernetes, network: pod}
  - {name: service, stack: kubernetes, network: service}
cases:
  - {name: rr, title: Round trips, workload: echo, protocol: udp, sizes: [64, 1280], duration: 1s}
  - {name: stream, workload: stream, protocol: tcp, sizes: [1280], duration: 1s}
`

// Each pair of nodes has all cases, and a resumed run has the same pairs and configurations.
func TestPairs(t *testing.T) {
	s, err := Parse("x.yaml", []byte(inCluster+`pairs: ["a:a", "a:b", "b:c.example"]`+"\nleave_out: [pod]\n"))
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, c := range s.Cases {
		names = append(names, c.Name)
	}
	want := "rr.same/64 rr.same/1280 rr.across-1/64 rr.across-1/1280 rr.across-2/64 rr.across-2/1280 stream.same/1280 stream.across-1/1280 stream.across-2/1280"
	if got := strings.Join(names, " "); got != want {
		t.Errorf("cases\n     %s\nwant %s", got, want)
	}
	last := s.Cases[5]
	if last.Pair != (Pair{"b", "c.example"}) || last.Title != "Round trips from b to c.example, 1280 B" || last.Group != "rr.across-2" || last.Size != 1280 {
		t.Errorf("the case is %+v", last)
	}
	if s.Cases[0].Title != "Round trips within a, 64 B" || len(s.Configurations) != 2 || !s.OfCluster() || !slices.Equal(s.Baselines, []string{"node"}) {
		t.Errorf("title %q, configurations %v, baselines %v", s.Cases[0].Title, s.Configurations, s.Baselines)
	}
	run := s.NewRun("r", 1, time.Time{})
	if options := run.Configurations[0].Options; len(options) != 1 || options["network"] != string(stack.HostNetwork) {
		t.Errorf("options %v", options)
	}
	again, err := FromRun("r", run)
	if err != nil || !slices.Equal(again.Pairs, s.Pairs) || len(again.Cases) != 9 || len(again.Configurations) != 2 {
		t.Errorf("resumed: %+v, %v", again, err)
	}
}

// The loads between two peers are for the two containers of a pod, too.
func TestPeersOfPod(t *testing.T) {
	text := strings.Replace(small, "workload: sockperf", "workload: echo", 1)
	text = strings.Replace(text, "  - {name: NoCont}\n", "", 1)
	text = strings.Replace(text, "network: brfusion}", "network: hostlo, drive: pod}", 1)
	s, err := Parse("x.yaml", []byte(text))
	if err != nil || s.Cases[0].Tool != "echo" {
		t.Errorf("got %+v, %v", s, err)
	}
}

// Without pairs, the file has each case once: a command adds the nodes of a cluster.
func TestNoPairs(t *testing.T) {
	s, err := Parse("x.yaml", []byte(inCluster))
	if err != nil || len(s.Cases) != 3 || s.Cases[0].Pair != (Pair{}) || s.Cases[0].Name != "rr/64" {
		t.Errorf("got %+v, %v", s, err)
	}
}

func TestPairsRefused(t *testing.T) {
	for text, want := range map[string]string{
		inCluster + "pairs: [a]\n":                                              `pairs[0]: want two nodes such as node1:node2, or one twice, got "a"`,
		inCluster + `pairs: ["a:B"]` + "\n":                                     `got "a:B"`,
		inCluster + `pairs: ["a:b", "a:b"]` + "\n":                              `pairs[1]: "a:b" is listed twice`,
		inCluster + "leave_out: [nat]\n":                                        `no configuration is named "nat": there are node, pod, service`,
		inCluster + "leave_out: [node, pod, service]\n":                         "no configuration is left",
		small + `pairs: ["a:b"]` + "\n":                                         "pairs: they are of configurations with stack kubernetes: leave them out",
		strings.Replace(inCluster, "workload: echo", "workload: sockperf", 1):   "sockperf needs more than pods: stack kubernetes has connect, echo and stream",
		strings.Replace(inCluster, "stack: kubernetes", "stack: vm", 1):         "needs a container",
		strings.Replace(small, "workload: sockperf", "workload: echo", 1):       "echo is between two containers: want drive: pod for all configurations, or stack kubernetes",
		strings.Replace(inCluster, "network: service", "network: localhost", 1): `network "localhost": a pod of a cluster has host, pod, service or brfusion`,
	} {
		if _, err := Parse("x.yaml", []byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v; want an error with %q", err, want)
		}
	}
}
