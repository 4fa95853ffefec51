//go:build !race

package plan

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// These tests plan whole traces, which takes minutes under the race detector. The other tests of
// this package start the same goroutines.

// The order of files and rows, and chance, change nothing. A fifth of the users is enough:
// TestShards plans all of a trace twice.
func TestDeterministic(t *testing.T) {
	args := []string{"--trace", "generated:1,7", "--catalogue", offer(t, "models: [large, xlarge, 2xlarge]"), "--json", "--shard", "1/5"}
	first := must(t, args...)
	if second := must(t, args...); first != second {
		t.Error("the same line has printed something else the second time")
	}
	lines := strings.Split(strings.TrimSpace(pods), "\n")
	slices.Reverse(lines[9:])
	other := decode(t, must(t, "--trace", "csv:"+file(t, "a.csv", strings.Join(lines, "\n")), "--json"))
	if diff := cmp.Diff(decode(t, must(t, "--trace", "csv:"+file(t, "b.csv", pods), "--json")).Cost, other.Cost); diff != "" {
		t.Errorf("another order of equal containers has another cost:\n%s", diff)
	}
}

// All shards put together are what is planned at once, in any order.
func TestShards(t *testing.T) {
	dir := t.TempDir()
	args := []string{"--trace", "generated:1", "--catalogue", offer(t, "models: [large, xlarge]"), "--json"}
	whole := must(t, args...)
	var files []string
	users := 0
	for i := range 3 {
		path := filepath.Join(dir, fmt.Sprint(i, ".json"))
		must(t, append(args, "--shard", fmt.Sprintf("%d/3", i), "-o", path)...)
		files = append(files, path)
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		part := len(decode(t, string(text)).PerUser)
		if part == 0 {
			t.Errorf("shard %d is empty", i)
		}
		users += part
	}
	if users != 507 {
		t.Errorf("the shards have %d users, want 507", users)
	}
	for _, named := range [][]string{{files[2], files[0], files[1]}, {dir}} {
		if diff := cmp.Diff(whole, must(t, append([]string{"merge", "--json"}, named...)...)); diff != "" {
			t.Errorf("merge %v is not the whole:\n%s", named, diff)
		}
	}
}

// The first ten lines say what one pays, could pay, and does next.
func TestCluster(t *testing.T) {
	text := must(t, "--trace", "generated:eks=50")
	first := strings.Join(strings.SplitAfterN(text, "\n", 11)[:10], "")
	for _, want := range []string{"You pay 26.564 $/h (19,392 $ a month) for 50 nodes.", "You could pay ", "Splitting ", "- Do next, once disruption budget ns-00/app-000 and 4 more let their pods move (add replicas first): in us-east-1"} {
		if !strings.Contains(words(first), want) {
			t.Errorf("the first ten lines lack %q:\n%s", want, first)
		}
	}
	for _, want := range []string{"2 0 2.012 0 GPUs are not planned", "Catalogues: g5, m6i, r6i. Prices: AWS price list of 2026-07-20, us-east-1.",
		"Left out: 2 pods that request nvidia.com/gpu", "on each VM pod anti-affinity by node", "No VM is larger than the largest of today."} {
		if !strings.Contains(words(text), want) {
			t.Errorf("the text lacks %q:\n%s", want, text)
		}
	}
}

// The sums agree, steps lead from what is paid to what could be paid, and every pod is placed.
func TestClusterSums(t *testing.T) {
	for _, seed := range []string{"1", "2", "3"} {
		c := clusterOf(t, "--trace", "generated:eks=20,"+seed)
		if !(c.Bound <= c.Split && c.Split <= c.Packed && c.Packed < c.Now) {
			t.Errorf("seed %s: bound %s, split %s, packed %s, now %s: want them to ascend", seed, c.Bound, c.Split, c.Packed, c.Now)
		}
		at := c.Now
		for _, s := range c.Steps {
			at -= s.Saves
		}
		if at != c.Split {
			t.Errorf("seed %s: the steps lead from %s to %s, want %s", seed, c.Now, at, c.Split)
		}
		for _, p := range c.Pools {
			pods := map[string]bool{}
			for _, vm := range p.Placement {
				for _, pod := range vm.Pods {
					pods[pod.Pod] = true
				}
			}
			if len(p.Placement) > 0 && len(pods) != p.Pods {
				t.Errorf("seed %s: pool %s places %d of %d pods", seed, p.Name, len(pods), p.Pods)
			}
		}
	}
}
