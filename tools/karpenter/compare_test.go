package karpenter

import (
	"testing"
	"time"
)

func TestSmall(t *testing.T) {
	for _, rules := range []string{"all", "0", "2", "1,3", "0,4"} {
		c, dump, err := generated(20, 1, rules)
		if err != nil {
			t.Fatal(err)
		}
		p, cpu, err := planned(dump)
		if err != nil {
			t.Fatal(err)
		}
		t.Log(rules, "now", p.Cluster.Now, "packed", p.Cluster.Packed, "split", p.Cluster.Split, "bound", p.Cluster.Bound, cpu)
		for _, pool := range p.Cluster.Pools {
			r := newRival(c, pool, p.Settings.Catalogue)
			today := r.cost()
			begin := time.Now()
			if err := r.fresh(); err != nil {
				t.Fatal(err)
			}
			fresh := r.cost()
			tf := time.Since(begin)
			if err := r.consolidate(time.Minute); err != nil {
				t.Fatal(err)
			}
			freshc := r.cost()
			old := newRival(c, pool, p.Settings.Catalogue)
			if err := old.consolidate(time.Minute); err != nil {
				t.Fatal(err)
			}
			t.Log(pool.Name, len(r.pods), pool.Pods, "now", pool.Now, today, "packed", pool.Packed, "bound", pool.Bound, "karpenter", fresh, freshc, "old", old.cost(), old.evicted, tf, time.Since(begin))
		}
	}
}
