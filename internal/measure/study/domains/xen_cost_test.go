//go:build xen

package domains

import (
	"context"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"strings"
	"testing"
	"time"

	"unnest.io/unnest/internal/measure/benchtest"
	"unnest.io/unnest/internal/measure/collocation"
	"unnest.io/unnest/internal/measure/machines"
	"unnest.io/unnest/internal/measure/stats"
	"unnest.io/unnest/internal/measure/workload"
	"unnest.io/unnest/internal/testbed/guest"
	"unnest.io/unnest/internal/testbed/place"
)

var xenCost = flag.String("xen-cost", "", "measure what counting domains of Xen costs, and write the page `FILE`")

// A byte goes to a domain and back, through dom0, so dom0 and the domain wake each other. With -xen-cost it
// measures how much longer that takes while xentop and xentrace count, in blocks in random order.
func TestXenCost(t *testing.T) {
	blocks, rounds := 1, 50
	if *xenCost != "" {
		blocks, rounds = 20, 400
	}
	set, accel := newPV(t)
	pv := set.Spec.Configurations[0]
	host, err := set.XenHost(t.Context(), pv)
	if err != nil {
		t.Fatal(err)
	}
	h, domain := xenCounters{XenHost: host}, set.Of(pv).Servers()
	both := xenCounters{XenHost: host, inner: []counter{h.countExecutions}}
	variants := []struct {
		name     string
		counters []counter
	}{
		{"neither", nil},
		{"xentop", []counter{h.countProcessors}},
		{"xentop and xentrace", []counter{both.countProcessors}},
	}
	random := rand.New(rand.NewPCG(1, 1))
	times := make([][]stats.Observation, len(variants))
	executions := 0.0
	for block := range blocks {
		for _, i := range random.Perm(len(variants)) {
			stop, err := startCounting(variants[i].counters, nil)
			if err != nil {
				t.Fatal(err)
			}
			took := roundTrips(t, domain.Place, rounds)
			values, err := stop()
			if err != nil {
				t.Fatal(err)
			}
			times[i] = append(times[i], stats.Observation{Block: block, Value: took.Seconds() * 1e6 / float64(rounds)})
			if i == 2 {
				executions = assertCounted(t, values)
			}
		}
	}
	if *xenCost == "" {
		return
	}
	var rows strings.Builder
	longer := []string{"", "not shown to be longer", "not shown to be longer"}
	for i, v := range variants {
		summary, err := stats.Summarize(stats.Values(times[i]))
		if err != nil {
			t.Fatal(err)
		}
		ratio := ""
		if i > 0 {
			e, err := stats.Compare(times[i], times[0], true)
			if err != nil {
				t.Fatal(err)
			}
			between := e.Interval(stats.DefaultConfidence)
			ratio = fmt.Sprintf("%.3f [%.3f, %.3f]", e.Ratio(), between.Low, between.High)
			if between.Low > 1 {
				longer[i] = "longer"
			}
		}
		fmt.Fprintf(&rows, "| %s | %.0f us | %s |\n", v.name, summary.Center, ratio)
	}
	text := fmt.Sprintf(`# What counting domains of Xen costs

**Result.** With xentop, a round trip is %s; with xentop and xentrace, it is %s.

<!-- begin chart column 3 Round trip over that without either, with 95 %% interval -->


<!-- end chart -->

For people who measure domains of Xen, and want to know what xentop and xentrace take from them. %s
measures it again and writes this page.

A byte goes from this machine through dom0 to a PV domain and back, %d times for each figure, and nothing else happens on the Xen host. Dom0 and
the domain share its processor and wake each other, so each round has at least two executions. %d blocks, in each the three
cases in random order:

| what counts | a round | ratio to neither, 95 %% interval |
|---|---:|---:|
%s
The domain had %.0f executions/s while both counted. Xen %s as a guest of QEMU with accelerator %s and one processor, %s.
`, longer[1], longer[2], "`make e2e TEST=TestXenCost ARGS='-xen-cost ../../../docs/results/xen-cost.md'`", rounds, blocks, rows.String(), executions, set.Facts().Tools["xen"], accel, time.Now().UTC().Format("2 January 2006"))
	if err := os.WriteFile(*xenCost, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// roundTrips sends a byte to a program in the domain, which returns it.
func roundTrips(t *testing.T, domain place.Place, rounds int) time.Duration {
	t.Helper()
	ctx, kill := context.WithCancel(t.Context())
	defer kill()
	toDomain, in := io.Pipe()
	out, fromDomain := io.Pipe()
	process, err := domain.Start(ctx, place.Command{Args: []string{"cat"}, Stdin: toDomain, Stdout: fromDomain})
	if err != nil {
		t.Fatal(err)
	}
	b := []byte{'x'}
	round := func() {
		if _, err := in.Write(b); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(out, b); err != nil {
			t.Fatal(err)
		}
	}
	round() // the program has started
	begin := time.Now()
	for range rounds {
		round()
	}
	took := time.Since(begin)
	if err := in.Close(); err != nil {
		t.Fatal(err)
	}
	if err := process.Wait(); err != nil {
		t.Fatal(err)
	}
	return took
}

// assertCounted checks what was counted of the domain and of dom0, and returns the executions of the domain.
func assertCounted(t *testing.T, values map[string][]workload.Value) float64 {
	t.Helper()
	domain, host := byMetric(t, values["pv"]), byMetric(t, values[ofHost])
	for metric, v := range map[string]float64{
		collocation.Utilisation: domain[collocation.Utilisation], collocation.Executions: domain[collocation.Executions],
		collocation.PerExecution: domain[collocation.PerExecution], collocation.Waiting: domain[collocation.Waiting],
		collocation.Voluntary: domain[collocation.Voluntary], collocation.HostCPU: host[collocation.HostCPU],
		collocation.HostExecutions: host[collocation.HostExecutions], collocation.HostPerExecution: host[collocation.HostPerExecution],
	} {
		if v <= 0 {
			t.Errorf("%s is %v", metric, v)
		}
	}
	return domain[collocation.Executions]
}

// newPV returns machines with a PV domain on a Xen host that it boots.
func newPV(t *testing.T) (*machines.Set, guest.Accel) {
	t.Helper()
	if os.Getenv("UNNEST_PRIVILEGED") != "1" {
		t.Skip("needs root: set UNNEST_PRIVILEGED=1")
	}
	spec := benchtest.XenSpec(t, "  - {name: PV, stack: xen-pv}\n", "  - {suite: sysbench, only: [sysbench-cpu], timeout: 10m}\n")
	spec.Guest.VCPUs = 1
	choice, err := guest.ChooseAccel(guest.AccelAuto)
	if err != nil {
		t.Fatal(err)
	}
	set := machines.New(spec, machines.Options{Lab: "xencost", Binaries: "../../../../bin", Accel: choice.Accel, Progress: &benchtest.Phases{}})
	t.Cleanup(func() {
		if err := set.Down(); err != nil {
			t.Error(err)
		}
	})
	if err := set.Open(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := set.Boot(t.Context(), machines.Needs{Machines: true}); err != nil {
		t.Fatal(err)
	}
	return set, choice.Accel
}
