//go:build chaos

package e2e

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"unnest.io/unnest/internal/hostd/ipam"
	"unnest.io/unnest/internal/testbed/fleet"
)

var chaosReport = flag.String("chaos-report", "", "file for the summary of TestChaos, in Markdown")

const (
	// auditInterval is the time between two audits.
	auditInterval = time.Minute
	// faultPause is the longest pause between two faults.
	faultPause = 8 * time.Second
	// chaosPods is the number of pods that a guest has at most, besides those of a cycle.
	chaosPods = 5
	// The periods of the workers make seven operations a second if nothing fails. With the
	// faults and audits it is more than 10,000 in an hour, on two busy processors.
	apiPeriod, podPeriod, segmentPeriod, volumePeriod = 2 * time.Second, 3 * time.Second, 15 * time.Second, 10 * time.Second
	// chaosPatience bounds how long a fault may interrupt what was promised.
	chaosPatience = time.Minute
)

// chaos is a lab with three guests of two tenants in which faults happen: two of the default
// tenant, which share segments and volumes, and one of the tenant red.
type chaos struct {
	*nodes
	seed   uint64
	faults *rand.Rand // used by the test's goroutine only
	first  []int      // faults that come first: each kind once
	guests []*chaosGuest
	pods   []*podWorker

	// gate is held for reading during a cycle of a worker, and for writing by an audit.
	gate sync.RWMutex

	mu       sync.Mutex
	failures []string
	done     map[string]int // operations and faults, by name
	damaged  map[string]bool
	serial   atomic.Int64
	slowest  time.Duration // until rules were back
	waited   time.Duration // the longest time until an operation succeeded
}

// chaosGuest is a guest that may be reset or replaced.
type chaosGuest struct {
	options fleet.Options

	mu    sync.Mutex
	node  *node
	epoch int // counts resets and replacements: then all pods of the guest are gone
	up    bool
}

// now returns the guest, and its epoch. up is false while it boots.
func (g *chaosGuest) now() (m *node, epoch int, up bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.node, g.epoch, g.up
}

// lost reports whether the guest was reset or replaced since the epoch.
func (g *chaosGuest) lost(epoch int) bool {
	_, now, up := g.now()
	return !up || now != epoch
}

// begin says that the guest is about to be lost: its connections are closed.
func (g *chaosGuest) begin() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.up = false
	g.epoch++
	_ = g.node.ssh.Close()
}

func (g *chaosGuest) end(m *node) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.node, g.up = m, true
}

// fail reports a failure, with the seed that begins the same faults again.
func (c *chaos) fail(format string, args ...any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.failures = append(c.failures, fmt.Sprintf(format, args...))
	if n := len(c.failures); n <= 30 {
		c.t.Errorf("seed %d, %s: %s", c.seed, time.Now().Format(time.TimeOnly), c.failures[n-1])
	}
}

// count counts an operation that has succeeded, or a fault.
func (c *chaos) count(what string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.done[what]++
}

func (c *chaos) total(words ...string) (n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for what, count := range c.done {
		for _, w := range words {
			if strings.HasPrefix(what, w) {
				n += count
			}
		}
	}
	return n
}

// chaosTime returns CHAOS_TIME, 1 minute if it is not set.
func chaosTime(t *testing.T) time.Duration {
	t.Helper()
	d, err := time.ParseDuration(cmp.Or(os.Getenv("CHAOS_TIME"), "1m"))
	if err != nil {
		t.Fatalf("CHAOS_TIME: %v", err)
	}
	return d
}

func chaosSeed(t *testing.T) uint64 {
	t.Helper()
	seed, err := strconv.ParseUint(cmp.Or(os.Getenv("CHAOS_SEED"), fmt.Sprint(time.Now().UnixNano()%1_000_000)), 10, 64)
	if err != nil {
		t.Fatalf("CHAOS_SEED: %v", err)
	}
	return seed
}

// Pods, segments and volumes come and go in three guests while the daemon, VMMs, guests and
// objects of the kernel fail at random. Every minute and at the end nothing has leaked, every
// pod has the network that it was promised, and no pod has more than that. `make chaos` runs it
// for CHAOS_TIME.
func TestChaos(t *testing.T) {
	c := newChaos(t)
	t.Logf("seed %d: CHAOS_SEED=%d begins the same faults again", c.seed, c.seed)
	begin := time.Now()
	ctx, stop := context.WithCancel(t.Context())
	var workers sync.WaitGroup
	c.work(ctx, &workers)
	audited := time.Now()
	for end := begin.Add(chaosTime(t)); time.Now().Before(end); {
		time.Sleep(time.Duration(c.faults.Int64N(int64(faultPause))))
		c.fault()
		if time.Since(audited) > auditInterval {
			c.audit()
			audited = time.Now()
		}
	}
	c.audit()
	stop()
	workers.Wait()
	c.nothingLeft()
	c.report(time.Since(begin))
}

func newChaos(t *testing.T) *chaos {
	c := &chaos{seed: chaosSeed(t), done: map[string]int{}, damaged: map[string]bool{}}
	c.faults = rand.New(rand.NewPCG(c.seed, 0))
	c.first = c.faults.Perm(len(chaosFaults))
	c.nodes = newNodes(t, func(f *fleet.Fleet) {
		p := &f.Policy.Tenants[0]
		p.Limits.RequestsPerSecond, p.Cooldown = 0, 5*time.Second
		p.Gateways = []netip.Prefix{netip.MustParsePrefix("10.201.0.1/16")}
		red := *p
		red.Name, red.Bridge, red.NAT, red.Volumes = "red", "br-red", true, ""
		red.Gateways = []netip.Prefix{netip.MustParsePrefix("10.203.0.1/16")}
		red.Ranges = []ipam.Range{{Subnet: netip.MustParsePrefix("10.203.0.0/16"), Gateway: netip.MustParseAddr("10.203.0.1")}}
		red.ClaimRanges = nil
		f.Policy.Tenants = append(f.Policy.Tenants, red)
		c.smallDisk(t, filepath.Join(f.Lab.Dir, "cooling"))
	})
	for k, tenant := range []string{fleet.Tenant, fleet.Tenant, "red"} {
		o := fleet.Options{Name: fmt.Sprintf("node%d", k+1), Tenant: tenant, Slots: chaosPods + 4, Pool: 1, Memory: 768 << 20}
		if tenant == fleet.Tenant {
			o.Shares = 2
		}
		c.guests = append(c.guests, &chaosGuest{options: o, node: c.launch(o), up: true})
	}
	for _, g := range c.guests {
		c.prepare(g.node)
	}
	return c
}

// prepare logs in to a guest that has just been launched or reset.
func (c *chaos) prepare(m *node) {
	c.t.Helper()
	m.login()
	m.put("unnest-volume")
	m.reclaim()
}

// smallDisk mounts a file system that a fault can fill.
func (c *chaos) smallDisk(t *testing.T, path string) {
	t.Helper()
	if err := os.MkdirAll(path, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("tmpfs", path, "tmpfs", 0, "size=128k"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(path, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
}
