package daemon

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"unnest.io/unnest/internal/hostapi/hostdpb"
	"unnest.io/unnest/internal/hostd/record"
	"unnest.io/unnest/internal/vmm"
)

var (
	busyBlocks = flag.Int("busy-blocks", 1, "blocks of TestBusyTenant")
	busyADDs   = flag.Int("busy-adds", 5, "ADDs of each half of a block of TestBusyTenant")
	busyReport = flag.String("busy-report", "", "`FILE` for the results of TestBusyTenant")
)

const (
	// busyPause is the time between two pods of the other tenant.
	busyPause = 250 * time.Millisecond
	// throttled is how long a request or a commit of a tenant takes that has used up what it may do at once.
	throttled = time.Second
)

// withFakeVMMs is set for a daemon whose guests have VMMs in its memory, which take no time.
const withFakeVMMs = "UNNEST_TEST_FAKE_VMMS"

const fakeSlots = 32

func serveFakes(ctx context.Context, c Config) error {
	d, err := newDaemon(c)
	if err != nil {
		return err
	}
	var mu sync.Mutex
	guests := map[string]*fakeVMM{}
	d.host.Dial = func(_ context.Context, r record.Guest) (vmm.VMM, error) {
		mu.Lock()
		defer mu.Unlock()
		if guests[r.Name] == nil {
			guests[r.Name] = newFakeVMM(fakeSlots)
		}
		return guests[r.Name], nil
	}
	return d.run(ctx)
}

const busyConfig = `listen: 127.0.0.1:7443
tenants:
  - {name: default, bridge: br0, ranges: [{subnet: 10.9.0.0/16}], cooldown: 0s, networkPolicy: optional, limits: {nics: 16}}
  - {name: other, bridge: br1, ranges: [{subnet: 10.8.0.0/16}], cooldown: 0s, networkPolicy: optional, limits: {attachesPerSecond: 0}}
`

// fake returns a guest of a tenant with a fake VMM.
func (l *lab) fake(index int, tenant string) *machine {
	l.t.Helper()
	name := fmt.Sprint("node", index)
	config, credentials := issue(l.t, l.dir, name)
	m := &machine{lab: l, config: config, record: record.Guest{
		Name: name, Tenant: tenant, Index: index, QMP: filepath.Join(filepath.Dir(record.Path(l.dir, name)), "qmp"), CertificateSHA256: credentials.Fingerprint,
	}}
	m.write()
	return m
}

// busyTenant is a tenant at its limits.
type busyTenant struct {
	*lab
	begun    time.Time
	guests   []*machine
	policies hostdpb.HostPolicy_ApplyClient
	rules    [][]*hostdpb.ApplyRequest // two versions of its policies, as large as they may be

	requests, commits atomic.Int64
	atLimits          sync.WaitGroup // of whoever has used up what it may do at once
}

// What a busy tenant does.
var busyWork = []struct {
	name string
	work func(*busyTenant, context.Context, *sync.WaitGroup)
}{
	{"nothing", func(*busyTenant, context.Context, *sync.WaitGroup) {}},
	{"requests", (*busyTenant).request},
	{"policies", (*busyTenant).commit},
}

// request has the guests ask for NICs and give them back, and for their status, as fast as they may and beyond, while all others
// of their NICs are in use.
func (b *busyTenant) request(ctx context.Context, wg *sync.WaitGroup) {
	for _, m := range b.guests {
		wg.Go(func() {
			for ctx.Err() == nil {
				_, _ = m.client().Status(ctx, &hostdpb.StatusRequest{})
				b.requests.Add(1)
			}
		})
		b.repeat(ctx, wg, func() error {
			_ = b.attach(ctx, m, "last") // may be refused above the rate
			_, _ = m.client().DetachNIC(ctx, &hostdpb.DetachNICRequest{ContainerId: "last", Interface: "eth0"})
			b.requests.Add(2)
			return nil
		})
	}
}

// repeat repeats what a client of the tenant does until ctx ends. b.atLimits waits until that is throttled.
func (b *busyTenant) repeat(ctx context.Context, wg *sync.WaitGroup, work func() error) {
	b.atLimits.Add(1)
	once := sync.OnceFunc(b.atLimits.Done)
	wg.Go(func() {
		defer once()
		for ctx.Err() == nil {
			begin := time.Now()
			if err := work(); err != nil {
				b.t.Error(err)
				return
			}
			if time.Since(begin) > throttled {
				once()
			}
		}
	})
}

// commit has the client change all of the policies, again and again.
func (b *busyTenant) commit(ctx context.Context, wg *sync.WaitGroup) {
	b.repeat(ctx, wg, func() error {
		_, err := apply(b.policies, b.rules[b.commits.Add(1)%2]...)
		return err
	})
}

func (b *busyTenant) attach(ctx context.Context, m *machine, container string) error {
	_, err := m.client().AttachNIC(ctx, &hostdpb.AttachNICRequest{ContainerId: container, Interface: "eth0", Allocate: true})
	return err
}

// A hundred pods that start at once on four guests are within what their tenant may do at once: their ADDs do not wait.
func TestPodsAtOnce(t *testing.T) {
	t.Setenv(withFakeVMMs, "1")
	l := newLab(t)
	l.configure(strings.Replace(busyConfig, "limits: {nics: 16}", "limits: {nics: 28}", 1))
	var all sync.WaitGroup
	var guests []*machine
	for i := range 4 {
		guests = append(guests, l.fake(i+1, "default"))
	}
	l.serve(patience)
	begin := time.Now()
	for i := range 100 {
		all.Go(func() {
			_, err := guests[i%4].client().AttachNIC(t.Context(), &hostdpb.AttachNICRequest{ContainerId: fmt.Sprint("c", i), Interface: "eth0", Allocate: true})
			if err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	t.Logf("100 pods have their NICs after %v", time.Since(begin))
}

// manyRules returns a policy of a pod with as many rules and peers as n policies with 100 exceptions.
func manyRules(t *testing.T, nic *hostdpb.NIC, n int) []*hostdpb.ApplyRequest {
	pod := policyOf("busy/a", nic)
	pod.Ingress.Allow = nil
	all := []*hostdpb.ApplyRequest{{Pod: pod}}
	for _, r := range manyExcepts(t, n) {
		more := &hostdpb.PodPolicy{Pod: "busy/a", Ingress: &hostdpb.PolicyDirection{Allow: []*hostdpb.PolicyRule{{}}}, Egress: &hostdpb.PolicyDirection{}}
		for _, p := range r.Peers {
			more.Ingress.Allow[0].Peers = append(more.Ingress.Allow[0].Peers, p.String())
		}
		all = append(all, &hostdpb.ApplyRequest{More: more})
	}
	return all
}

func quantile(all []time.Duration, q float64) time.Duration {
	sorted := slices.Sorted(slices.Values(all))
	return sorted[min(len(sorted)-1, int(q*float64(len(sorted))))]
}

// A tenant at its limits, in requests, NICs and policies, does not keep another tenant's pods from their NICs.
// Block by block, in random order, another tenant's ADDs are timed while it does nothing and while it works.
func TestBusyTenant(t *testing.T) {
	t.Setenv(withFakeVMMs, "1")
	l := newLab(t)
	l.configure(busyConfig)
	b := &busyTenant{lab: l, begun: time.Now()}
	for i := range 4 {
		b.guests = append(b.guests, l.fake(i+1, "default"))
	}
	calm := l.fake(9, "other")
	l.serve(patience)
	for _, m := range b.guests {
		for j := range 15 {
			l.eventually("the guest has its NICs", func() bool { return b.attach(t.Context(), m, fmt.Sprint("c", j)) == nil })
		}
	}
	nics, err := b.guests[0].client().ListNICs(t.Context(), &hostdpb.ListNICsRequest{})
	l.check(err)
	b.rules = [][]*hostdpb.ApplyRequest{manyRules(t, nics.GetNics()[0], 190), manyRules(t, nics.GetNics()[0], 180)}
	b.policies = l.policyClient(l.enrollPolicy("default"))
	l.eventually("the other tenant's guest is there", func() bool { return b.attach(t.Context(), calm, "first") == nil })
	all := make([][][]time.Duration, len(busyWork)) // by work and block
	used := make([][3]time.Duration, len(busyWork)) // by work: the time, and that of processors in the clients and in the daemon
	for range *busyBlocks {
		for _, kind := range rand.Perm(len(busyWork)) {
			ctx, stop := context.WithCancel(t.Context())
			var working sync.WaitGroup
			busyWork[kind].work(b, ctx, &working)
			b.atLimits.Wait()
			var block []time.Duration
			before := b.used()
			for i := range *busyADDs {
				begin := time.Now()
				l.check(b.attach(t.Context(), calm, fmt.Sprint("pod", i)))
				block = append(block, time.Since(begin))
				l.check(calm.detach(fmt.Sprint("pod", i)))
				time.Sleep(busyPause)
			}
			for i, after := range b.used() {
				used[kind][i] += after - before[i]
			}
			stop()
			working.Wait()
			all[kind] = append(all[kind], block)
		}
	}
	report := b.describe(all, used)
	t.Log("\n" + report)
	if *busyReport != "" {
		l.check(os.WriteFile(*busyReport, []byte(report), 0o644))
	}
}

// used returns the time, and that of the processors that the clients and the daemon have used.
func (b *busyTenant) used() (all [3]time.Duration) {
	b.t.Helper()
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", b.daemon.Process.Pid))
	b.check(err)
	_, after, _ := strings.Cut(string(stat), ") ")
	fields := strings.Fields(after)
	var clients unix.Rusage
	b.check(unix.Getrusage(unix.RUSAGE_SELF, &clients))
	all[0], all[1] = time.Since(b.begun), time.Duration(clients.Utime.Nano()+clients.Stime.Nano())
	for _, ticks := range fields[11:13] { // utime and stime, proc(5)
		n, err := strconv.Atoi(ticks)
		b.check(err)
		all[2] += time.Duration(n) * time.Second / 100
	}
	return all
}

const busyTitle = `# ADDs next to a tenant at its limits

` + "`make e2e TEST=TestBusyTenant ARGS='-busy-blocks 12 -busy-adds 40 -busy-report FILE'`" + ` writes this page. The daemon and the packet filter are
real, in a network namespace; the VMMs are in the daemon's memory and take no time. One tenant has four guests, each with all of the 16 NICs
that it may have but one. It does nothing, or its guests ask for that NIC and give it back, and for their status, as fast as they may, or its client changes
19,000 ranges of peers of a pod again and again. Once it has used up what it may do at once, a guest of another tenant has a NIC attached and
detached, and rests for 250 ms, again and again. The time of an ADD is measured at its client. Intervals are bootstrapped over blocks.

Tenants change the host's network in turns, of which each is a step: a rule, a limit, an address, a place on a bridge. The tenant that has had
less time of late has the next one; attaches above their tenant's rate, and commits of policies, come last. In the long run the guests of a tenant attach two NICs
a second (limits.attachesPerSecond), and its commits have a five-hundredth of the time. Before that it may have its guests' NICs attached at once, and half a second of commits: meanwhile
an ADD of another tenant takes longer than this page says. The other tenant has no such rate here. A turn does not cover two things: the kernel deletes the TAP that a VMM has closed, behind the lock
that all changes of devices take, until no processor uses the TAP any more; and the clients of both tenants, which are one process, and the daemon share the
processors, with everything else that runs on the machine.

`

// change returns by how many percent a quantile of ADDs in some blocks is longer than in those without work.
func change(q float64, rest, work [][]time.Duration, blocks []int) float64 {
	var r, w []time.Duration
	for _, i := range blocks {
		r, w = append(r, rest[i]...), append(w, work[i]...)
	}
	return 100 * (float64(quantile(w, q))/float64(quantile(r, q)) - 1)
}

func (b *busyTenant) describe(all [][][]time.Duration, used [][3]time.Duration) string {
	var whole []int
	for i := range all[0] {
		whole = append(whole, i)
	}
	load, _ := os.ReadFile("/proc/loadavg")
	text := busyTitle + fmt.Sprintf("On %s, %d processors, with a load average of %.5s at the end: %d blocks in random order, %d ADDs of each kind in each block; %d requests and %d commits of the busy tenant.\n\n"+
		"| it is busy with | ADD, p50 | ADD, p99 | change of p50 (95 %%) | change of p99 (95 %%) | clients, of a processor | daemon, of a processor |\n|---|---|---|---|---|---|---|\n", time.Now().Format(time.DateOnly), runtime.NumCPU(), load, len(whole), len(all[0][0]), b.requests.Load(), b.commits.Load())
	for kind, blocks := range all {
		adds := slices.Concat(blocks...)
		text += fmt.Sprintf("| %s | %.1f ms | %.1f ms |", busyWork[kind].name, 1e3*quantile(adds, 0.5).Seconds(), 1e3*quantile(adds, 0.99).Seconds())
		for _, q := range []float64{0.5, 0.99} {
			var drawn []float64
			random := rand.New(rand.NewPCG(1, 2))
			for range 2000 { // bootstrap over blocks
				again := make([]int, len(whole))
				for i := range again {
					again[i] = random.IntN(len(whole))
				}
				drawn = append(drawn, change(q, all[0], blocks, again))
			}
			slices.Sort(drawn)
			text += fmt.Sprintf(" %+.0f %% (%+.0f to %+.0f) |", change(q, all[0], blocks, whole), drawn[50], drawn[1950])
		}
		text += fmt.Sprintf(" %.0f %% | %.0f %% |\n", 100*used[kind][1].Seconds()/used[kind][0].Seconds(), 100*used[kind][2].Seconds()/used[kind][0].Seconds())
	}
	return text
}
