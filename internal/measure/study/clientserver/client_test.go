package clientserver

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"unnest.io/unnest/internal/measure/benchtest"
	"unnest.io/unnest/internal/measure/experiment"
	"unnest.io/unnest/internal/measure/machines"
	"unnest.io/unnest/internal/measure/machines/machine"
	"unnest.io/unnest/internal/measure/study/client"
	"unnest.io/unnest/internal/measure/study/server"
	"unnest.io/unnest/internal/measure/workload"
	"unnest.io/unnest/internal/testbed/place"
)

// pingPong and stream are the cases of these tests: the client of the first
// idles before it loads the network, that of the second does not.
var (
	pingPong = benchtest.Case("udp_rr", "sockperf", workload.UDP)
	stream   = benchtest.Case("tcp_stream", "iperf3", workload.TCP)
	cache    = benchtest.Case("memcached", "memcached", "")
)

// clock is a place whose commands take given times, on the clock of a test, and record
// when they load the network.
type clock struct {
	mu   sync.Mutex
	took []time.Duration // of the commands to come; those after them take their wall time
	runs []*run
}

// run is a command that was started.
type run struct {
	tool                string
	Start, loading, end time.Time
	killed              bool
}

// loaded reports whether the command loaded the network.
func (r *run) loaded() bool { return r.end.After(r.loading) }

func (p *clock) String() string { return "clock" }

func (p *clock) Put(context.Context, string, fs.FileMode, io.Reader) error {
	return errors.New("a clock takes no files")
}

func (p *clock) Start(ctx context.Context, c place.Command) (place.Process, error) {
	w, err := workload.Lookup(c.Args[0])
	if err != nil {
		return nil, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	took := w.Wall(pingPong.Params)
	if len(p.took) > 0 {
		took, p.took = p.took[0], p.took[1:]
	}
	r := &run{tool: w.Name(), Start: time.Now(), loading: time.Now().Add(w.Lead())}
	p.runs = append(p.runs, r)
	return benchtest.Process(func() error {
		select {
		case <-ctx.Done():
			r.killed = true
		case <-time.After(took):
		}
		r.end = time.Now()
		return ctx.Err()
	}), nil
}

// newBench returns a bench whose clients run in p.
func newBench(p *clock) *Study {
	ports := map[string]int{}
	for _, c := range []experiment.Case{pingPong, stream} {
		key := server.Key(c)
		ports[key] = server.FirstPort + len(ports)
	}
	return &Study{Set: &machines.Set{}, Client: p, Instances: map[string]*server.Service{
		"NAT": {Address: "10.201.0.2", Ports: ports}, "BrFusion": {Address: "10.201.1.1", Ports: ports},
	}}
}

// execute does with the client what Execute does.
func execute(ctx context.Context, b *Study, e experiment.Execution) {
	c, err := b.turn(ctx, e, func() error { return nil })
	if err != nil {
		panic(err)
	}
	<-c.Done
	c.Kill()
}

// assertNoOverlap checks that at most one command loaded the network at a time.
func assertNoOverlap(t *testing.T, p *clock) {
	t.Helper()
	var last *run
	byLoad := func(a, b *run) int { return a.loading.Compare(b.loading) }
	for _, r := range slices.SortedFunc(slices.Values(p.runs), byLoad) {
		if !r.loaded() {
			continue
		}
		if last != nil && r.loading.Before(last.end) {
			t.Errorf("%s loads from %v on, but the %s before it until %v", r.tool, r.loading, last.tool, last.end)
		}
		last = r
	}
}

// If the executions that follow are known, their clients idle during the present one, and
// load soon after each other.
func TestTurnAhead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &clock{}
		b := newBench(p)
		const executions = 5
		var plan []experiment.Execution
		for i := range executions {
			plan = append(plan, benchtest.Execution("BrFusion", pingPong, i))
		}
		for i := range plan {
			b.Next(plan[i+1 : min(i+3, len(plan))])
			execute(t.Context(), b, plan[i])
		}
		if len(p.runs) != executions {
			t.Fatalf("%d clients were started for %d executions", len(p.runs), executions)
		}
		assertNoOverlap(t, p)
		for i, r := range p.runs {
			if r.killed || !r.loaded() {
				t.Errorf("client %d: %+v; want it not to be killed", i, r)
			}
			if i > 0 && r.loading.Sub(p.runs[i-1].end) != loadGap {
				t.Errorf("client %d loads %v after the one before, want %v", i, r.loading.Sub(p.runs[i-1].end), loadGap)
			}
		}
		if err := b.Down(); err != nil {
			t.Error(err)
		}
	})
}

// The load of a client that idles begins soon after that of one that does not, or after the restart
// of the servers, because it was started two executions ahead, or during the restart.
func TestTurnTwoAhead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &clock{}
		b := newBench(p)
		b.restart = 3 * time.Second
		plan := []experiment.Execution{
			benchtest.Execution("NAT", pingPong, 0), benchtest.Execution("BrFusion", stream, 0),
			benchtest.Execution("BrFusion", pingPong, 0), benchtest.Execution("NAT", pingPong, 1),
			benchtest.Execution("NAT", stream, 1), benchtest.Execution("NAT", pingPong, 2),
		}
		b.startEarly(t.Context(), plan[:1], time.Now().Add(b.restart))
		time.Sleep(b.restart)
		end := time.Now()
		for i, e := range plan {
			b.Next(plan[i+1 : min(i+3, len(plan))])
			execute(t.Context(), b, e)
		}
		if len(p.runs) != len(plan) {
			t.Fatalf("%d clients were started for %d executions", len(p.runs), len(plan))
		}
		assertNoOverlap(t, p)
		slices.SortFunc(p.runs, func(a, b *run) int { return a.loading.Compare(b.loading) })
		for i, r := range p.runs {
			want := loadGap
			if r.tool == "iperf3" {
				want = 0
			}
			if got := r.loading.Sub(end); got != want || r.killed {
				t.Errorf("client %d (%s) loads %v after the one before, want %v; killed: %v", i, r.tool, got, want, r.killed)
			}
			end = r.end
		}
		if err := b.Down(); err != nil {
			t.Error(err)
		}
	})
}

// What happens to a client that was started in advance, if another execution follows
// than expected.
func TestTurnOtherwise(t *testing.T) {
	first, second := benchtest.Execution("NAT", pingPong, 0), benchtest.Execution("BrFusion", pingPong, 0)
	wall, lead := pingPong.Wall, pingPong.Workload().Lead()
	type outcome struct{ killed, loaded bool }
	ran, idled, stopped := outcome{false, true}, outcome{true, false}, outcome{true, true}
	tests := []struct {
		name string
		took []time.Duration
		do   func(ctx context.Context, b *Study)
		want []outcome // of the clients in the order of their start
	}{
		{"its turn comes too late", []time.Duration{3 * wall}, func(ctx context.Context, b *Study) {
			execute(ctx, b, first)
			execute(ctx, b, second)
		}, []outcome{ran, idled, ran}},
		{"its turn comes before it was started", []time.Duration{wall / 8}, func(ctx context.Context, b *Study) {
			execute(ctx, b, first)
			execute(ctx, b, second)
		}, []outcome{{false, false}, ran}},
		{"its turn never comes", nil, func(ctx context.Context, b *Study) {
			execute(ctx, b, first)
			time.Sleep(2 * lead)
		}, []outcome{ran, idled}},
		{"another block", nil, func(ctx context.Context, b *Study) {
			execute(ctx, b, first)
			execute(ctx, b, benchtest.Execution("BrFusion", pingPong, 1))
		}, []outcome{ran, idled, ran}},
		{"another configuration", nil, func(ctx context.Context, b *Study) {
			execute(ctx, b, first)
			execute(ctx, b, benchtest.Execution("NAT", pingPong, 0))
		}, []outcome{ran, idled, ran}},
		{"another workload", nil, func(ctx context.Context, b *Study) {
			execute(ctx, b, first)
			execute(ctx, b, benchtest.Execution("BrFusion", stream, 0))
		}, []outcome{ran, idled, ran}},
		{"the first is tried again", []time.Duration{lead + wall/4}, func(ctx context.Context, b *Study) {
			execute(ctx, b, first)
			execute(ctx, b, first)
			execute(ctx, b, second)
		}, []outcome{ran, idled, ran, ran}},
		{"everything goes down while it idles", nil, func(ctx context.Context, b *Study) {
			execute(ctx, b, first)
		}, []outcome{ran, idled}},
		{"the context ends while the first loads", nil, func(ctx context.Context, b *Study) {
			ctx, cancel := context.WithTimeout(ctx, lead+wall/4)
			defer cancel()
			execute(ctx, b, first)
			time.Sleep(2 * lead)
		}, []outcome{stopped, idled}},
		{"the context ends while its turn is", nil, func(ctx context.Context, b *Study) {
			execute(ctx, b, first)
			ctx, cancel := context.WithTimeout(ctx, loadGap+wall/8)
			defer cancel()
			execute(ctx, b, second)
		}, []outcome{ran, stopped}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := &clock{took: tt.took}
				b := newBench(p)
				b.Next([]experiment.Execution{second})
				tt.do(t.Context(), b)
				if err := b.Down(); err != nil {
					t.Error(err)
				}
				synctest.Wait()
				assertNoOverlap(t, p)
				var got []outcome
				for i, r := range p.runs {
					if r.end.IsZero() {
						t.Errorf("client %d outlives the bench", i)
					}
					got = append(got, outcome{r.killed, r.loaded()})
				}
				if fmt.Sprint(got) != fmt.Sprint(tt.want) {
					t.Errorf("clients (killed, loaded): got %v, want %v", got, tt.want)
				}
			})
		})
	}
}

// A client that was not claimed is killed shortly before it would load.
func TestTurnExpires(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &clock{}
		b := newBench(p)
		b.Next([]experiment.Execution{benchtest.Execution("BrFusion", pingPong, 0)})
		execute(t.Context(), b, benchtest.Execution("NAT", stream, 0))
		time.Sleep(time.Minute)
		synctest.Wait()
		i := slices.IndexFunc(p.runs, func(r *run) bool { return r.tool == "sockperf" })
		if len(p.runs) != 2 || i < 0 {
			t.Fatalf("clients: %+v; want one of each workload", p.runs)
		}
		if before := p.runs[i].loading.Sub(p.runs[i].end); before != client.ClaimGuard {
			t.Errorf("it was killed %v before its load, want %v", before, client.ClaimGuard)
		}
	})
}

// A client that does not idle is never started in advance.
func TestTurnWithoutLead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &clock{}
		b := newBench(p)
		for i := range 3 {
			b.Next([]experiment.Execution{benchtest.Execution("BrFusion", stream, i+1)})
			execute(t.Context(), b, benchtest.Execution("BrFusion", stream, i))
			if b.early != nil {
				t.Error("a client without idle time was started ahead")
			}
		}
		assertNoOverlap(t, p)
	})
}

// A client in a pod is not started ahead, because it would disturb what is measured
// in its guest; the CPU times are read when it idles, shortly before it loads, or
// before it starts when it does not idle.
func TestTurnInPod(t *testing.T) {
	for _, k := range []experiment.Case{pingPong, stream} {
		synctest.Test(t, func(t *testing.T) {
			p := &clock{}
			b := newBench(nil)
			b.Instances["Hostlo"] = &server.Service{Client: p, Address: machine.Loopback, Ports: b.Instances["NAT"].Ports}
			idle := max(0, k.Workload().Lead()-client.ClaimGuard)
			for i := range 3 {
				b.Next([]experiment.Execution{benchtest.Execution("Hostlo", k, i+1)})
				start := time.Now()
				c, err := b.turn(t.Context(), benchtest.Execution("Hostlo", k, i), func() error {
					synctest.Wait()
					if got := time.Since(start); got != idle || (len(p.runs) == i+1) != (idle > 0) {
						t.Errorf("%s: prepared after %v with %d clients started, want %v", k.Name, got, len(p.runs), idle)
					}
					return nil
				})
				if err != nil {
					t.Fatal(err)
				}
				<-c.Done
				if b.early != nil {
					t.Errorf("%s: the next client was started ahead in the guest", k.Name)
				}
			}
			if len(p.runs) != 3 {
				t.Errorf("%s: %d clients for 3 executions", k.Name, len(p.runs))
			}
			assertNoOverlap(t, p)
		})
	}
}

// A client in a pod ends when the preparation of its load fails.
func TestTurnInPodFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &clock{}
		b := newBench(nil)
		b.Instances["Hostlo"] = &server.Service{Client: p, Ports: b.Instances["NAT"].Ports}
		why := errors.New("the guest is gone")
		if c, err := b.turn(t.Context(), benchtest.Execution("Hostlo", pingPong, 0), func() error { return why }); c != nil || !errors.Is(err, why) {
			t.Errorf("got %v, %v", c, err)
		}
		if len(p.runs) != 1 || !p.runs[0].killed || p.runs[0].loaded() {
			t.Errorf("clients: %+v; want one that was killed before its load", p.runs)
		}
	})
}

// In any order of executions of any duration, loads never overlap, and the client of
// each execution is not killed.
func TestTurnNeverOverlaps(t *testing.T) {
	cases := []experiment.Case{pingPong, pingPong, stream}
	for seed := range uint64(200) {
		synctest.Test(t, func(t *testing.T) {
			r := rand.New(rand.NewPCG(seed, 0))
			p := &clock{}
			for range 100 {
				p.took = append(p.took, time.Duration(r.Int64N(int64(2*pingPong.Wall))))
			}
			b := newBench(p)
			var plan []experiment.Execution
			for i := range 20 {
				plan = append(plan, benchtest.Execution([]string{"NAT", "BrFusion"}[r.IntN(2)], cases[r.IntN(3)], i))
			}
			for i, e := range plan {
				switch r.IntN(5) {
				case 0: // nothing is foretold
				case 1:
					b.Next([]experiment.Execution{plan[r.IntN(len(plan))], plan[r.IntN(len(plan))]})
				default:
					b.Next(plan[min(i+1, len(plan)):min(i+1+r.IntN(3), len(plan))])
				}
				execute(t.Context(), b, e)
				time.Sleep(time.Duration(r.Int64N(int64(time.Second))))
			}
			if err := b.Down(); err != nil {
				t.Error(err)
			}
			synctest.Wait()
			assertNoOverlap(t, p)
			ran := 0
			for _, r := range p.runs {
				if !r.killed {
					ran++
				}
			}
			if ran < len(plan) || t.Failed() {
				t.Fatalf("seed %d: %d clients ended by themselves for %d executions", seed, ran, len(plan))
			}
		})
	}
}
