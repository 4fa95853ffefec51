package plan

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
)

// owner measures one owner of more and more containers.
func (b *benchmark) owner(ctx context.Context) error {
	b.printf("\nOne owner of generated pods (--owner cluster), --oversize cut\n")
	var before runs
	for _, part := range []int{100, 10, 1} {
		file := filepath.Join(b.dir, "owner.csv")
		n, err := writeGenerated(file, max(1, b.containers/part))
		if err != nil {
			return err
		}
		run, err := b.repeated(ctx, "csv:"+file, "cut", "--owner", ownerCluster)
		if err != nil {
			return err
		}
		b.printf("  %d containers: %s%s\n", n, run, growth(before, run))
		before = run
		if err := b.flush(); err != nil {
			return err
		}
	}
	return nil
}

// equalContainers is how many equal containers there are for each generated one.
const equalContainers = 12

// equal measures one owner of many containers of few sizes, as the batch jobs of Alibaba's trace
// of 2017 are.
func (b *benchmark) equal(ctx context.Context) error {
	file := filepath.Join(b.dir, "equal.csv")
	n := equalContainers * b.containers
	if err := writeEqual(file, n); err != nil {
		return err
	}
	b.printf("\nOne owner of %d containers of 60 sizes, --oversize cut\n", n)
	run, err := b.repeated(ctx, "csv:"+file, "cut")
	if err != nil {
		return err
	}
	b.printf("  from a new process, %s\n", run)
	return os.Remove(file)
}

// writeEqual writes pods of one user with so many containers in all. Their numbers of containers
// have a Pareto distribution up to 20,000, and the containers of a pod are equal.
func writeEqual(file string, containers int) (err error) {
	f, err := os.Create(file)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	w := bufio.NewWriter(f)
	random := rand.New(rand.NewPCG(1, 60))
	type size struct{ cpu, memory int } // thousandths of a vCPU, MiB
	var sizes []size
	for range 60 {
		sizes = append(sizes, size{[]int{50, 100, 200, 250, 500, 1000}[random.IntN(6)], []int{64, 128, 256, 400, 512, 1000, 2000}[random.IntN(7)]})
	}
	_, _ = fmt.Fprintln(w, "user,pod,container,cpu,memory")
	for pod := 0; containers > 0; pod++ {
		n := min(int(min(20*math.Pow(1-random.Float64(), -1/.7), 20_000)), containers)
		containers -= n
		s := sizes[random.IntN(len(sizes))]
		for k := range n {
			_, _ = fmt.Fprintf(w, "u,p%d,%d,%dm,%dMi\n", pod, k, s.cpu, s.memory) // Flush returns a failure
		}
	}
	return w.Flush()
}
