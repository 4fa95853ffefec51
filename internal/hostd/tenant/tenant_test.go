package tenant

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"unnest.io/unnest/internal/hostd/attachment"
	"unnest.io/unnest/internal/hostd/ipam"
	"unnest.io/unnest/internal/hostd/quota"
)

// tenantPolicy is that of a tenant with a cool-down of a minute.
func tenantPolicy() quota.Tenant {
	return quota.Tenant{
		Name: "default", Bridge: "br0", MTU: 1400, Ranges: []ipam.Range{{Subnet: netip.MustParsePrefix("10.9.0.0/24")}}, ClaimRanges: []netip.Prefix{netip.MustParsePrefix("10.9.0.0/24")}, Cooldown: time.Minute,
		Limits: quota.Limits{NICs: 16},
	}
}

func uncontained(_ string, f func()) { f() }

// testTenant returns the test policy's first tenant, which has a cool-down of a
// minute, and what it logs.
func testTenant(t *testing.T, stateDir string) (*Tenant, *bytes.Buffer) {
	t.Helper()
	log := new(bytes.Buffer)
	made, err := New(tenantPolicy(), stateDir, slog.New(slog.NewTextHandler(log, nil)), uncontained)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(made.file.flush) // before stateDir is removed
	return made, log
}

// A file that cannot be read is moved aside, and the tenant starts without it.
func TestDamagedCoolingFile(t *testing.T) {
	for name, damage := range map[string]func(path string) error{
		"empty":       func(path string) error { return os.WriteFile(path, nil, 0o600) },
		"zeros":       func(path string) error { return os.WriteFile(path, make([]byte, 4096), 0o600) },
		"cut":         func(path string) error { return os.WriteFile(path, []byte(`[{"address":"10.9.0.9","un`), 0o600) },
		"other":       func(path string) error { return os.WriteFile(path, []byte(`{"a":1}`), 0o600) },
		"a directory": func(path string) error { return os.Mkdir(path, 0o700) },
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			path := filepath.Join(dir, "cooling", "default.json")
			for range 2 { // also when it happens again
				if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
					t.Fatal(err)
				}
				if err := damage(path); err != nil {
					t.Fatal(err)
				}
				tenant, log := testTenant(t, dir)
				if stats, _ := tenant.Stats(); stats.Cooling != 0 {
					t.Errorf("%d addresses cool down", stats.Cooling)
				}
				if _, err := os.Stat(path + ".damaged"); err != nil || !strings.Contains(log.String(), "level=WARN") {
					t.Errorf("moved aside: %v; log: %s", err, log)
				}
				if _, err := os.Stat(path); err == nil {
					t.Error("the damaged file is still in place")
				}
			}
		})
	}
}

// A clock that was set back before the daemon starts does not make addresses rest for
// longer than the cool-down.
func TestCoolingFileOfTheFuture(t *testing.T) {
	dir := t.TempDir()
	content := fmt.Sprintf(`[{"address":"10.9.0.9","until":%q}]`, time.Now().Add(1000*time.Hour).Format(time.RFC3339))
	path := filepath.Join(dir, "cooling", "default.json")
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	tenant, log := testTenant(t, dir)
	got := tenant.cooling()
	if len(got) != 1 || time.Until(got[0].Until) > time.Minute {
		t.Errorf("got %v, want 10.9.0.9 for a minute at most; log: %s", got, log)
	}
}

// churn gives addresses to NICs and releases them.
func churn(t *testing.T, tenant *Tenant, n int) {
	t.Helper()
	for i := range n {
		owner := fmt.Sprint("node1/c", i)
		address := netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 9, 0, byte(10 + i)}), 24)
		if err := tenant.Hold(owner, attachment.Record{Addresses: []netip.Prefix{address}}); err != nil {
			t.Fatal(err)
		}
		tenant.Release(owner)
	}
}

// Many releases are one write, a second later. A write that fails is tried again.
func TestCoolingFileIsWrittenLazily(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "cooling", "default.json")
	read := func() (all []ipam.Cooling) {
		content, err := os.ReadFile(path)
		if err == nil {
			err = json.Unmarshal(content, &all)
		}
		if err != nil {
			t.Error(err)
		}
		return all
	}
	synctest.Test(t, func(t *testing.T) {
		tenant, log := testTenant(t, dir)
		churn(t, tenant, 20)
		if _, err := os.Stat(path); err == nil {
			t.Error("the file was written during the requests")
		}
		time.Sleep(coolingDelay)
		synctest.Wait()
		if got := read(); len(got) != 20 || got[0].Guest != "node1" {
			t.Errorf("got %v, want 20 addresses of node1", got)
		}
		files, err := os.ReadDir(filepath.Dir(path))
		if err != nil || len(files) != 1 {
			t.Errorf("got %v, %v, want one file", files, err)
		}
		// A directory in the place of the file makes the write fail.
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
		if err := os.MkdirAll(filepath.Join(path, "x"), 0o700); err != nil {
			t.Fatal(err)
		}
		churn(t, tenant, 5)
		time.Sleep(coolingDelay)
		synctest.Wait()
		if !strings.Contains(log.String(), "level=WARN") {
			t.Error("the failure is not logged")
		}
		if err := os.RemoveAll(path); err != nil {
			t.Fatal(err)
		}
		time.Sleep(coolingRetry)
		synctest.Wait()
		if got := read(); len(got) != 20 {
			t.Errorf("after the failure: got %v, want 20 addresses", got)
		}
		// A daemon that stops writes at once, and the next one continues.
		tenant.Release("node1/none")
		churn(t, tenant, 21)
		tenant.file.flush()
		if next, log := testTenant(t, dir); len(next.cooling()) != 21 {
			t.Errorf("the next daemon has %v, want 21 addresses; log: %s", next.cooling(), log)
		}
	})
}

// A guest that names 16 addresses for each of its pods gets as many as the policy says, and
// no more. Its pods keep theirs, and other guests are not concerned.
func TestAddressesOfAGuest(t *testing.T) {
	tenant, _ := testTenant(t, t.TempDir())
	p := tenant.Now()
	p.Limits.Addresses = 40
	tenant.Change(p)
	sixteen := func(from int) (all []netip.Prefix) {
		for i := range 16 {
			all = append(all, netip.MustParsePrefix(fmt.Sprintf("10.9.0.%d/24", from+i)))
		}
		return all
	}
	take := func(owner string, addresses []netip.Prefix, allocate bool) error {
		_, err := tenant.Take(owner, addresses, allocate)
		return err
	}
	for i, c := range []struct {
		owner    string
		asked    []netip.Prefix
		allocate bool
		refused  bool
	}{
		{"node1/c1", sixteen(1), false, false},
		{"node1/c2", sixteen(17), false, false},
		{"node1/c3", sixteen(33), false, true},
		{"node1/c3", sixteen(33)[:8], false, false}, // 40
		{"node1/c4", nil, true, true},
		{"node1/c1", sixteen(1), false, false}, // again
		{"node1/c1", sixteen(100), false, false},
		{"node2/c1", sixteen(120), false, false},
		{"node1/c2", sixteen(17)[:1], false, false}, // gives 15 back
		{"node1/c4", nil, true, false},
	} {
		err := take(c.owner, c.asked, c.allocate)
		if errors.Is(err, quota.ErrLimit) != c.refused || err != nil && !c.refused {
			t.Errorf("%d: %s: got %v, want refused %v", i, c.owner, err, c.refused)
		}
		if c.refused && !strings.Contains(err.Error(), "at most 40") {
			t.Errorf("%d: got %v", i, err)
		}
	}
	tenant.Release("node1/c1")
	tenant.Release("node1/c2")
	if err := take("node1/c5", sixteen(150), false); err != nil {
		t.Errorf("after two pods are gone: %v", err)
	}
	if stats, _ := tenant.Stats(); stats.InUse != 8+1+16+16 {
		t.Errorf("%d addresses in use, want 41", stats.InUse)
	}
}

// The queues of all ports of a tenant have a bound, whatever bandwidth its guests ask
// for. Those of ports that exist count, even beyond it.
func TestQueuesOfTenant(t *testing.T) {
	tenant, _ := testTenant(t, t.TempDir())
	p := tenant.Now()
	p.Limits.QueueMemory = 5
	tenant.Change(p)
	fast := attachment.Record{Bandwidth: quota.Bandwidth{IngressRate: 1e9, EgressRate: 1e9}} // 1 MiB each
	slow := attachment.Record{Bandwidth: quota.Bandwidth{IngressRate: 8e3}}                  // 80 KiB
	admit := func(owner string, r attachment.Record, want error) {
		t.Helper()
		if err := tenant.Admit(owner, r); !errors.Is(err, want) {
			t.Errorf("%s: got %v, want %v", owner, err, want)
		}
	}
	admit("a/1", fast, nil)
	admit("b/1", fast, nil)
	admit("b/1", fast, nil) // again
	admit("a/2", fast, quota.ErrLimit)
	admit("a/2", slow, nil)
	admit("a/2", fast, quota.ErrLimit)
	admit("a/3", attachment.Record{}, nil)
	if err := tenant.Hold("c/1", fast); err != nil {
		t.Fatal(err)
	}
	admit("a/4", slow, quota.ErrLimit)
	admit("a/4", attachment.Record{}, nil)
	if err := tenant.Hold("b/1", slow); err != nil {
		t.Fatal(err)
	}
	tenant.Release("c/1")
	admit("a/5", fast, nil)
}

// A limit that a reload has changed holds for the guests that are connected.
func TestReloadLimits(t *testing.T) {
	tenant, _ := testTenant(t, t.TempDir())
	changed := tenantPolicy()
	changed.Limits.NICs = 1
	tenant.Change(changed)
	admit := func(owner string) error { return tenant.Admit(owner, attachment.Record{}) }
	for _, owner := range []string{"node1/c1/eth0", "node1/c1/eth0", "node10/c1/eth0"} { // again, and of another guest
		if err := admit(owner); err != nil {
			t.Errorf("%s: %v", owner, err)
		}
	}
	if err := admit("node1/c2/eth0"); !errors.Is(err, quota.ErrLimit) { // the first need not have its NIC yet
		t.Errorf("got %v, want the limit of 1", err)
	}
	changed.Limits.NICs = 2
	tenant.Change(changed)
	if err := admit("node1/c2/eth0"); err != nil {
		t.Errorf("with a limit of 2: %v", err)
	}
}

// A guest chooses addresses only where the operator lets guests choose, or those that it had a
// moment ago: not those of guests of the configuration, enrolled or not, none below a range's
// first, none that another guest's pod had a moment ago, and so none of the range that all share.
func TestAttackClaimAddress(t *testing.T) {
	p := tenantPolicy()
	p.Ranges[0].First, p.Ranges[0].Last = netip.MustParseAddr("10.9.0.10"), netip.MustParseAddr("10.9.0.110")
	p.ClaimRanges = []netip.Prefix{netip.MustParsePrefix("10.9.0.200/29")}
	p.Limits.Addresses = 20
	tenant, err := New(p, t.TempDir(), slog.New(slog.DiscardHandler), uncontained)
	if err != nil {
		t.Fatal(err)
	}
	tenant.Reserve("later", netip.MustParseAddr("10.9.0.5"), netip.MustParseAddr("10.9.0.201"))
	claim := func(owner string, addresses ...string) error {
		var all []netip.Prefix
		for _, a := range addresses {
			all = append(all, netip.MustParsePrefix(a+"/24"))
		}
		_, err := tenant.Take(owner, all, false)
		return err
	}
	had := map[string]string{} // addresses that cool down, by guest
	for _, guest := range []string{"victim", "rogue"} {
		got, err := tenant.Take(guest+"/c1", nil, true)
		if err != nil {
			t.Fatal(err)
		}
		if err := tenant.Hold(guest+"/c1", attachment.Record{Addresses: []netip.Prefix{got[0].Prefix}}); err != nil {
			t.Fatal(err)
		}
		tenant.Release(guest + "/c1")
		had[guest] = got[0].Prefix.Addr().String()
	}
	for address, why := range map[string]string{
		"10.9.0.5": "of a guest", "10.9.0.201": "of a guest", "10.9.0.3": "below first", "10.9.0.50": "free, of the range", "10.9.0.150": "beyond the range",
		had["victim"]: "cooling down after another guest",
	} {
		if err := claim("rogue/c2", address); !errors.As(err, new(*ipam.TakenError)) && !errors.Is(err, ipam.ErrUnusable) {
			t.Errorf("%s, %s: got %v, want it refused", address, why, err)
		}
	}
	for i := range 9 { // nine NICs with 16 addresses each
		var all []string
		for j := range 16 {
			all = append(all, fmt.Sprintf("10.9.0.%d", 10+11*i+j%11))
		}
		if err := claim(fmt.Sprint("rogue/n", i), slices.Compact(all)...); err == nil {
			t.Errorf("NIC %d has taken a part of the range", i)
		}
	}
	if err := errors.Join(claim("rogue/c3", had["rogue"]), claim("rogue/c4", "10.9.0.200", "10.9.0.202")); err != nil {
		t.Errorf("addresses that the guest may choose: %v", err)
	}
	if err := claim("other/c1", "10.9.0.202"); !errors.As(err, new(*ipam.TakenError)) {
		t.Errorf("an address of another guest's pod: got %v", err)
	}
	p.Limits.Addresses = 3
	tenant.Change(p) // as a reload does
	if err := claim("rogue/c5", "10.9.0.203"); !errors.Is(err, quota.ErrLimit) {
		t.Errorf("more than the limit: got %v", err)
	}
	tenant.Reserve("later") // it is gone
	if err := claim("other/c2", "10.9.0.201"); err != nil {
		t.Errorf("an address of a guest that is gone: %v", err)
	}
	// A daemon that starts keeps what a NIC has, whatever the configuration says by now.
	if err := tenant.Hold("old/c1", attachment.Record{Addresses: []netip.Prefix{netip.MustParsePrefix("10.9.0.4/24")}}); err != nil {
		t.Errorf("take over: %v", err)
	}
}
