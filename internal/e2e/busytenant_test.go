package e2e

import (
	"context"
	"crypto/tls"
	"flag"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"os/exec"
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
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"

	"unnest.io/unnest/internal/hostapi/hostdpb"
	"unnest.io/unnest/internal/hostapi/identity"
	hostcredentials "unnest.io/unnest/internal/hostd/credentials"
	"unnest.io/unnest/internal/hostd/record"
	"unnest.io/unnest/internal/vmm/qemu"
)

var (
	busyBlocks = flag.Int("busy-blocks", 1, "blocks of TestTenants/Busy")
	busyADDs   = flag.Int("busy-adds", 3, "ADDs of each kind in a block of TestTenants/Busy")
	busyReport = flag.String("busy-report", "", "`FILE` for the results of TestTenants/Busy")
)

const (
	// busyNICs is how many NICs each of the busyGuests of the busy tenant may have. They have so many slots that none has to wait for one that rests.
	busyNICs, busySlots, busyGuests = 16, 48, 4
	// throttled is how long a request or a commit of a tenant takes that has used up what it may do at once.
	throttled = time.Second
)

// busyTenant is a tenant at its limits.
type busyTenant struct {
	*nodes
	begun    time.Time
	vmms     []int // process IDs
	guests   []hostdpb.HostDaemonClient
	policies hostdpb.HostPolicyClient
	rules    [][]*hostdpb.ApplyRequest // two versions of its policies, as large as they may be

	requests, attaches, commits atomic.Int64
	atLimits                    sync.WaitGroup // of whoever has used up what it may do at once
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
	for _, c := range b.guests {
		wg.Go(func() {
			for ctx.Err() == nil {
				_, _ = c.Status(ctx, &hostdpb.StatusRequest{})
				b.requests.Add(1)
			}
		})
		b.repeat(ctx, wg, func() error {
			if attachNIC(ctx, c, "last") == nil { // may be refused above the rate
				b.attaches.Add(1)
			}
			_, _ = c.DetachNIC(ctx, &hostdpb.DetachNICRequest{ContainerId: "last", Interface: "eth0"})
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
			waits := time.AfterFunc(throttled, once)
			err := work()
			waits.Stop()
			if err != nil && ctx.Err() == nil {
				b.t.Error(err)
				return
			}
		}
	})
}

// commit has the client change all of the policies, again and again.
func (b *busyTenant) commit(ctx context.Context, wg *sync.WaitGroup) {
	stream, err := b.policies.Apply(ctx)
	b.check(err)
	b.repeat(ctx, wg, func() error {
		err := apply(stream, b.rules[b.commits.Load()%2]...)
		if err == nil {
			b.commits.Add(1)
		}
		return err
	})
}

func attachNIC(ctx context.Context, c hostdpb.HostDaemonClient, container string) error {
	_, err := c.AttachNIC(ctx, &hostdpb.AttachNICRequest{ContainerId: container, Interface: "eth0", Allocate: true})
	return err
}

// apply sends requests and a commit, and waits for the answer to the commit.
func apply(s hostdpb.HostPolicy_ApplyClient, requests ...*hostdpb.ApplyRequest) error {
	for _, r := range append(requests, &hostdpb.ApplyRequest{Commit: true}) {
		if err := s.Send(r); err != nil {
			break // Recv has the reason
		}
	}
	for {
		if r, err := s.Recv(); err != nil || len(r.GetEnded()) == 0 && r.GetOwnership() == nil {
			return err
		}
	}
}

// manyRules returns a policy of the pod with an address: n rules with 100 ranges of peers each.
func manyRules(address netip.Addr, n int) []*hostdpb.ApplyRequest {
	all := []*hostdpb.ApplyRequest{{Pod: &hostdpb.PodPolicy{
		Pod: "busy/a", Addresses: []string{address.String()}, Ingress: &hostdpb.PolicyDirection{}, Egress: &hostdpb.PolicyDirection{},
	}}}
	for i := range n {
		rule := &hostdpb.PolicyRule{}
		for j := range 100 {
			rule.Peers = append(rule.Peers, fmt.Sprintf("%x:%x::2-%[1]x:ffff::", 0x2000+j, i))
		}
		all = append(all, &hostdpb.ApplyRequest{More: &hostdpb.PodPolicy{
			Pod: "busy/a", Ingress: &hostdpb.PolicyDirection{Allow: []*hostdpb.PolicyRule{rule}}, Egress: &hostdpb.PolicyDirection{},
		}})
	}
	return all
}

// connect connects to the daemon from the host's namespace.
func (n *nodes) connect(config *tls.Config) *grpc.ClientConn {
	n.t.Helper()
	conn, err := grpc.NewClient("passthrough:///"+daemonAddress, grpc.WithTransportCredentials(credentials.NewTLS(config)),
		grpc.WithContextDialer(func(ctx context.Context, address string) (net.Conn, error) {
			return n.fleet.Lab.Dial(ctx, "tcp", address)
		}))
	n.check(err)
	n.t.Cleanup(func() { conn.Close() })
	return conn
}

// launch starts a guest without a system: a paused QEMU whose slots have no power, so that it gives a NIC up at once.
func (b *busyTenant) launch(tenant string, index int) {
	b.t.Helper()
	name := fmt.Sprint("busy", index)
	dir := b.fleet.Lab.GuestDir(name)
	b.check(os.MkdirAll(dir, 0o700))
	socket, ports := filepath.Join(dir, "hostd.qmp"), qemu.Ports(busySlots)
	args := []string{
		"-S", "-M", "q35", "-accel", "tcg", "-m", "64", "-nodefaults", "-display", "none", "-qmp", "unix:" + socket + ",server=on,wait=off",
		"-global", "ICH9-LPC.acpi-pci-hotplug-with-bridge-support=off", // by ACPI it would ask the system
	}
	for i, port := range ports {
		args = append(args, "-device", fmt.Sprintf("pcie-root-port,id=%s,chassis=%d,slot=%[2]d,addr=%#x.%d,multifunction=on", port, i+1, 1+i/8, i%8))
	}
	vmm := exec.Command("qemu-system-x86_64", args...)
	vmm.Stderr = b.t.Output()
	b.check(vmm.Start())
	b.t.Cleanup(func() {
		_ = vmm.Process.Kill()
		_ = vmm.Wait()
	})
	authority, err := identity.OpenAuthority(b.fleet.Lab.Dir)
	b.check(err)
	issued, err := authority.Issue(name)
	b.check(err)
	pair, err := tls.X509KeyPair(issued.CertificatePEM, issued.KeyPEM)
	b.check(err)
	b.check(record.Write(b.fleet.Lab.Dir, record.Guest{
		Name: name, Tenant: tenant, Index: index, PID: vmm.Process.Pid, QMP: socket, Ports: ports, CertificateSHA256: issued.Fingerprint,
	}))
	b.vmms = append(b.vmms, vmm.Process.Pid)
	b.guests = append(b.guests, hostdpb.NewHostDaemonClient(b.connect(&tls.Config{Certificates: []tls.Certificate{pair}, InsecureSkipVerify: true})))
}

// newBusyTenant returns a tenant whose guests have all NICs that they may have but one.
func newBusyTenant(n *nodes, tenant string) *busyTenant {
	n.t.Helper()
	b := &busyTenant{nodes: n, begun: time.Now()}
	for i := range busyGuests {
		b.launch(tenant, 101+i)
	}
	for _, c := range b.guests {
		for j := range busyNICs - 1 {
			n.eventually("the guest has its NICs", func() bool { return attachNIC(n.t.Context(), c, fmt.Sprint("c", j)) == nil })
		}
	}
	nics, err := b.guests[0].ListNICs(n.t.Context(), &hostdpb.ListNICsRequest{})
	n.check(err)
	address := netip.MustParsePrefix(nics.GetNics()[0].GetAddresses()[0]).Addr()
	b.rules = [][]*hostdpb.ApplyRequest{manyRules(address, 190), manyRules(address, 180)}
	dir := filepath.Join(n.t.TempDir(), "policies")
	n.check(hostcredentials.EnrollPolicy(n.fleet.Lab.Dir, n.fleet.Policy, tenant, dir))
	config, err := identity.ClientConfig(dir)
	n.check(err)
	b.policies = hostdpb.NewHostPolicyClient(n.connect(config))
	return b
}

// timeADDs gives pods of a guest a NIC, one after the other, and returns how long each ADD took its runtime.
func (m *node) timeADDs(count int) (all []time.Duration) {
	m.nodes.t.Helper()
	for _, line := range strings.Fields(m.run(fmt.Sprintf(`bash -e -s <<'END'
		call() {
			CNI_COMMAND=$1 CNI_CONTAINERID=timed$i CNI_NETNS=/run/netns/timed$i CNI_IFNAME=eth0 CNI_PATH=/usr/lib/cni \
				/usr/lib/cni/brfusion </etc/unnest/brfusion.json >/tmp/timed || { cat /tmp/timed; exit 1; }
		}
		for i in {1..%d}; do
			ip netns add timed$i
			begin=$EPOCHREALTIME
			call ADD
			end=$EPOCHREALTIME
			echo $((${end/./} - ${begin/./}))
			call DEL
			ip netns del timed$i
		done
`+"END", count))) {
		us, err := strconv.Atoi(line)
		m.nodes.check(err)
		all = append(all, time.Duration(us)*time.Microsecond)
	}
	return all
}

// A tenant at its limits, in requests, NICs and policies, does not keep another tenant's pods from their NICs.
// Block by block, in random order, another tenant's ADDs are timed while it does nothing and while it works.
func busyNeighbour(t *testing.T, calm *node, tenant string) {
	b := newBusyTenant(calm.nodes, tenant)
	calm.timeADDs(1)                                // the first one fills the pool
	all := make([][][]time.Duration, len(busyWork)) // by work and block
	used := make([][4]time.Duration, len(busyWork)) // by work: as used returns
	for done := range *busyBlocks {
		for _, kind := range rand.Perm(len(busyWork)) {
			ctx, stop := context.WithCancel(t.Context())
			var working sync.WaitGroup
			busyWork[kind].work(b, ctx, &working)
			b.atLimits.Wait()
			before := b.used()
			block := calm.timeADDs(*busyADDs)
			for i, after := range b.used() {
				used[kind][i] += after - before[i]
			}
			stop()
			working.Wait()
			t.Log(busyWork[kind].name, block)
			all[kind] = append(all[kind], block)
		}
		if *busyReport != "" { // after each block: a run that is ended early has a report
			b.check(os.WriteFile(*busyReport, []byte(b.describe(all, used)), 0o644))
			fmt.Fprintf(os.Stderr, "block %d of %d\n", done+1, *busyBlocks)
		}
	}
	if b.attaches.Load() == 0 || b.commits.Load() == 0 {
		t.Errorf("the busy tenant has made %d attaches and %d commits, want some", b.attaches.Load(), b.commits.Load())
	}
	t.Log("\n" + b.describe(all, used))
}

// used returns the time, and that of the processors that the clients, the daemon and the VMMs have used.
func (b *busyTenant) used() (all [4]time.Duration) {
	b.t.Helper()
	var clients unix.Rusage
	b.check(unix.Getrusage(unix.RUSAGE_SELF, &clients))
	all[0], all[1] = time.Since(b.begun), time.Duration(clients.Utime.Nano()+clients.Stime.Nano())
	for i, pids := range [][]int{{b.daemonPID()}, b.vmms} {
		for _, pid := range pids {
			stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
			b.check(err)
			_, after, _ := strings.Cut(string(stat), ") ")
			for _, ticks := range strings.Fields(after)[11:13] { // utime and stime, proc(5)
				n, err := strconv.Atoi(ticks)
				b.check(err)
				all[2+i] += time.Duration(n) * time.Second / 100
			}
		}
	}
	return all
}

func quantile(all []time.Duration, q float64) time.Duration {
	sorted := slices.Sorted(slices.Values(all))
	return sorted[min(len(sorted)-1, int(q*float64(len(sorted))))]
}

const busyTitle = `# ADDs next to a tenant at its limits

**Result.** ADDs next to a busy tenant take this much longer than next to an idle one.

<!-- begin chart column 5 99th percentile of ADDs over that next to an idle tenant, with 95 % interval -->


<!-- end chart -->

` + "`make e2e TEST=TestTenants/Busy ARGS='-busy-blocks 150 -busy-adds 5 -busy-report FILE'`" + ` writes this page. In a guest, which is emulated, the CNI
plugin gives pods a NIC and takes it back, one pod after the other. The time of an ADD is that of the plugin's process in the guest, as a container runtime meets it. The NIC comes from a pool of
two. Another tenant of the same host daemon has four guests, each with all of the 16 NICs that it may have but one. It does nothing, or its guests ask for that NIC and give it
back, and for their status, as fast as they may, or its client changes 19,000 ranges of peers of a pod again and again. Its guests are QEMUs without a system, paused, which give up a NIC at once. The
ADDs begin once it has used up what it may do at once. Intervals are bootstrapped over blocks.

Tenants change the host's network in turns, of which each is a step: a rule, a limit, an address, a place on a bridge. The tenant that has had
less time of late has the next one; attaches above their tenant's rate, and commits of policies, come last. In the long run the guests of a tenant attach two NICs
a second (limits.attachesPerSecond), and its commits have a five-hundredth of the time. Before that it may have its guests' NICs attached at once, and half a second of commits: meanwhile
an ADD of another tenant takes longer than this page says. A turn does not cover two things: the kernel deletes the TAP that a VMM has closed, behind the lock
that all changes of devices take, until no processor uses the TAP any more; and clients, daemon, VMMs and the guest share the processors.

`

// change returns by how many percent a quantile of ADDs in some blocks is longer than in those without work.
func change(q float64, rest, work [][]time.Duration, blocks []int) float64 {
	var r, w []time.Duration
	for _, i := range blocks {
		r, w = append(r, rest[i]...), append(w, work[i]...)
	}
	return 100 * (float64(quantile(w, q))/float64(quantile(r, q)) - 1)
}

func (b *busyTenant) describe(all [][][]time.Duration, used [][4]time.Duration) string {
	var whole []int
	for i := range all[0] {
		whole = append(whole, i)
	}
	load, _ := os.ReadFile("/proc/loadavg")
	text := busyTitle + fmt.Sprintf("On %s, %d processors, with a load average of %.5s at the end: %d blocks in random order, %d ADDs of each kind in each block; %d requests, %d attached NICs and %d commits of the busy tenant.\n\n"+
		"| it is busy with | ADD, p50 | ADD, p99 | change of p50 (95 %%) | change of p99 (95 %%) | clients, of a processor | daemon | its VMMs |\n|---|---|---|---|---|---|---|---|\n", time.Now().Format(time.DateOnly), runtime.NumCPU(), load, len(whole), len(all[0][0]), b.requests.Load(), b.attaches.Load(), b.commits.Load())
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
		for _, part := range used[kind][1:] {
			text += fmt.Sprintf(" %.0f %% |", 100*part.Seconds()/used[kind][0].Seconds())
		}
		text += "\n"
	}
	return text
}
