package scheduler

import (
	"flag"
	"fmt"
	"os"
	"testing"

	"pgregory.net/rapid"
)

var most = flag.Int("nodes", 100, "nodes of the largest generated cluster")

// The scheduler accepts the plans of random clusters, which have a mix of rules.
func TestRandomClusters(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		text := cluster(r, t, small, kinds)
		if wrong := wrongs(t, text); len(wrong) > 0 {
			r.Fatalf("%d are wrong in the plan of %s, such as %s", len(wrong), kept(t, text), wrong[0])
		}
	})
}

// Clusters with one kind of rules have plans that are right.
func TestKinds(t *testing.T) {
	for _, k := range kinds {
		t.Run(k.name, func(t *testing.T) {
			for seed := range 5 {
				text := rapid.Custom(func(r *rapid.T) []byte { return cluster(r, t, small, []kind{k}) }).Example(seed)
				if wrong := wrongs(t, text); len(wrong) > 0 {
					t.Fatalf("seed %d: %d are wrong, such as %s", seed, len(wrong), wrong[0])
				}
				text = rapid.Custom(func(r *rapid.T) []byte { return cluster(r, t, tiny, []kind{k}) }).Example(seed)
				if wrong, _ := boundWrong(t, text); wrong != "" {
					t.Fatalf("seed %d: %s", seed, wrong)
				}
			}
		})
	}
}

// The scheduler accepts the plans of clusters of many nodes.
func TestGeneratedClusters(t *testing.T) {
	for _, nodes := range []int{50, 100, 200, 500} {
		if nodes > *most {
			break
		}
		t.Run(fmt.Sprint(nodes), func(t *testing.T) {
			s := size{nodes: nodes, models: 3, zones: 3, workloads: nodes, replicas: 12, containers: 3}
			text := rapid.Custom(func(r *rapid.T) []byte { return cluster(r, t, s, kinds) }).Example(nodes)
			if wrong := wrongs(t, text); len(wrong) > 0 {
				t.Errorf("%d are wrong in the plan of %s, such as %s", len(wrong), kept(t, text), wrong[0])
			}
		})
	}
}

// wrongs returns what is wrong with the plan of a dump.
func wrongs(t *testing.T, text []byte) (wrong []string) {
	t.Helper()
	p, err := planned(text)
	if err != nil {
		return []string{fmt.Sprintf("%v", err)}
	}
	refused, err := judged(text, p)
	if err != nil {
		return []string{fmt.Sprintf("%v", err)}
	}
	for _, v := range refused {
		wrong = append(wrong, v.String())
	}
	for _, pool := range p.Cluster.Pools {
		if pool.Bound > pool.Split+1e-9 || pool.Split > pool.Now+1e-9 {
			wrong = append(wrong, fmt.Sprintf("pool %s: bound %v, plan %v, today %v", pool.Name, pool.Bound, pool.Split, pool.Now))
		}
	}
	return wrong
}

// kept writes a dump where it stays, and returns the name of the file.
func kept(t *testing.T, text []byte) string {
	t.Helper()
	f, err := os.CreateTemp("", "cluster*.json")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.Write(text); err != nil {
		t.Fatal(err)
	}
	return f.Name()
}
