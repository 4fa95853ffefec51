package karpenter

import (
	"cmp"
	"encoding/csv"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

var (
	clusters = flag.Int("clusters", 0, "compare this `NUMBER` of clusters instead of a few small ones")
	first    = flag.Int("first", 0, "the `NUMBER` of the first of them")
	publish  = flag.Bool("publish", false, "write the page and the table of the results")
)

// mixes are kinds of rules of workloads: see hack/cluster. The annotation against evictions, 5, is
// in none, see generated.
var mixes = []struct{ name, kinds string }{
	{"none", "0"},
	{"volumes in zones, anti-affinity, spread over zones, tainted nodes, no requests, node affinity", "0,1,2,3,4,6,7,8,9"},
	{"anti-affinity for half of the workloads", "0,2"},
	{"volumes in zones and spread over zones", "1,3"},
	{"tainted nodes for half of the workloads", "0,4"},
}

// spec returns the nodes, the mix and the seed of a cluster.
func spec(number int) (nodes, mix, seed int) {
	sizes := []int{10, 15, 20, 25, 30, 40, 50, 60, 80, 100}
	nodes = sizes[number%len(sizes)]
	switch number {
	case 29, 59:
		nodes = 200
	case 79:
		nodes = 500
	case 99:
		nodes = 1000
	}
	return nodes, (number + number/len(sizes)) % len(mixes), number + 1
}

// few is how many clusters are compared unless told.
const few = 7

// most is how long Karpenter may consolidate a pool of a cluster. The page counts those that it does
// not finish.
const most = 5 * time.Minute

// row is what the pools of a cluster cost, without nodes that stay whatever is planned, $/h.
type row struct {
	nodes, mix, pods                          int
	today, bound, unnest, split, fresh, after float64
	moved, evicted                            int     // pods, by Unnest's steps and by Karpenter from today's nodes
	cpu, freshCPU, afterCPU                   float64 // seconds
	unfinished                                int     // pools
}

// fields are the columns of the published table.
func (r *row) fields() []any {
	return []any{&r.nodes, &r.mix, &r.pods, &r.today, &r.bound, &r.unnest, &r.split, &r.fresh, &r.after, &r.moved, &r.evicted, &r.cpu, &r.freshCPU, &r.afterCPU, &r.unfinished}
}

var header = []string{"nodes", "mix", "pods", "today", "bound", "unnest", "unnest_split", "karpenter_new", "karpenter_today", "unnest_moved", "karpenter_evicted",
	"unnest_cpu_s", "karpenter_new_cpu_s", "karpenter_today_cpu_s", "karpenter_unfinished_pools"}

// compared plans a cluster by Unnest, and by Karpenter in two ways: as a new cluster, and from the
// nodes of today. Karpenter consolidates both until it finds nothing more.
func compared(number int) (r row, err error) {
	nodes, mix, seed := spec(number)
	r.nodes, r.mix = nodes, mix
	c, dump, err := generated(nodes, seed, mixes[mix].kinds)
	if err != nil {
		return r, err
	}
	p, cpu, err := planned(dump)
	if err != nil {
		return r, err
	}
	r.cpu = cpu.Seconds()
	for _, step := range p.Cluster.Steps {
		if step.Action == "pack" {
			r.moved += step.Moved
		}
	}
	for _, pool := range p.Cluster.Pools {
		if pool.Stays != "" {
			return r, fmt.Errorf("pool %s stays as it is: %s", pool.Name, pool.Stays)
		}
		r.pods += pool.Pods
		r.today, r.bound, r.unnest, r.split = r.today+pool.Now, r.bound+pool.Bound, r.unnest+pool.Packed, r.split+pool.Split
		if err := r.rivals(c, pool, p.Settings.Catalogue); err != nil {
			return r, fmt.Errorf("pool %s: %w", pool.Name, err)
		}
	}
	return r, nil
}

// rivals adds what Karpenter makes of a pool.
func (r *row) rivals(c cluster, p pool, models []model) error {
	k := newRival(c, p, models)
	if len(k.pods) != p.Pods || abs(k.cost()-p.Now) > cent {
		return fmt.Errorf("Karpenter has %d pods and pays %.3f $/h, the plan has %d and %.3f", len(k.pods), k.cost(), p.Pods, p.Now)
	}
	begin := cpuTime()
	if err := k.consolidate(most); err != nil {
		return err
	}
	r.after, r.evicted, r.afterCPU = r.after+k.cost(), r.evicted+k.evicted, r.afterCPU+(cpuTime()-begin).Seconds()
	n := newRival(c, p, models)
	begin = cpuTime()
	if err := n.fresh(); err != nil {
		return err
	}
	if err := n.consolidate(most); err != nil {
		return err
	}
	r.fresh, r.freshCPU = r.fresh+n.cost(), r.freshCPU+(cpuTime()-begin).Seconds()
	for _, one := range []*rival{k, n} {
		if one.cut {
			r.unfinished++
		}
		if one.cost() < p.Bound-cent {
			return fmt.Errorf("Karpenter pays %.4f $/h, below the bound of %.4f", one.cost(), p.Bound)
		}
	}
	return nil
}

// cent is less than two costs differ by that are not equal, $/h.
const cent = 1e-6

func abs(x float64) float64 { return max(x, -x) }

// cpuTime returns the time of processors that this process has used.
func cpuTime() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		panic(err) // the arguments are right
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// Unnest's plans cost no more than Karpenter's, and no plan is below the bound.
func TestClusters(t *testing.T) {
	var rows []row
	for number := *first; number < cmp.Or(*clusters, few); number++ {
		r, err := compared(number)
		if err != nil {
			t.Fatalf("cluster %d: %v", number, err)
		}
		rows = append(rows, r)
		t.Logf("%d nodes, %d pods, %s: today %.3f, bound %.3f, Unnest %.3f in %.1f s, Karpenter %.3f in %.1f s, from today %.3f in %.1f s, %d pools cut",
			r.nodes, r.pods, mixes[r.mix].name, r.today, r.bound, r.unnest, r.cpu, r.fresh, r.freshCPU, r.after, r.afterCPU, r.unfinished)
		if r.unnest < r.bound-cent || r.split < r.bound-cent || r.unnest > r.today+cent {
			t.Errorf("cluster %d: Unnest pays %.4f, today %.4f, bound %.4f", number, r.unnest, r.today, r.bound)
		}
		if best := min(r.fresh, r.after); r.unnest > best+cent && *clusters == 0 { // else the page counts it
			t.Errorf("cluster %d, %d nodes, rules %s: Unnest pays %.4f $/h, Karpenter %.4f", number, r.nodes, mixes[r.mix].kinds, r.unnest, best)
		}
		if *publish {
			write(t, rows)
		}
	}
}

// results is where the page and the table are.
const results = "../../docs/results/plan-karpenter"

func write(t *testing.T, rows []row) {
	t.Helper()
	var table strings.Builder
	w := csv.NewWriter(&table)
	_ = w.Write(header) // Flush and Error return a failure
	for _, r := range rows {
		var line []string
		for _, f := range r.fields() {
			switch f := f.(type) {
			case *int:
				line = append(line, strconv.Itoa(*f))
			case *float64:
				line = append(line, strconv.FormatFloat(*f, 'f', 4, 64))
			}
		}
		_ = w.Write(line)
	}
	w.Flush()
	text := page(rows)
	for name, content := range map[string]string{results + ".csv": table.String(), results + ".md": text} {
		if err := os.WriteFile(filepath.FromSlash(name), []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// read returns the published rows.
func read(t *testing.T) (rows []row) {
	t.Helper()
	f, err := os.Open(results + ".csv")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	lines, err := csv.NewReader(f).ReadAll()
	if err != nil || !slices.Equal(lines[0], header) {
		t.Fatalf("%v: header %v", err, lines[0])
	}
	for _, line := range lines[1:] {
		var r row
		for i, field := range r.fields() {
			if _, err := fmt.Sscan(line[i], field); err != nil {
				t.Fatal(err)
			}
		}
		rows = append(rows, r)
	}
	return rows
}
