//go:build xen

package xen

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"unnest.io/unnest/internal/testbed/doctor"
	"unnest.io/unnest/internal/testbed/fleet"
	"unnest.io/unnest/internal/testbed/guest"
	"unnest.io/unnest/internal/testbed/image"
	"unnest.io/unnest/internal/testbed/lab"
	"unnest.io/unnest/internal/testbed/place"
)

// patience is for a machine that is busy with other things: there each step takes minutes.
const patience = 15 * time.Minute

// bootHost boots a Xen host, and returns it with the connection to dom0.
func bootHost(t *testing.T, image image.Image) (*Host, *place.SSH) {
	t.Helper()
	l, err := lab.Create("xentest")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	})
	f, err := fleet.Open(l)
	if err != nil {
		t.Fatal(err)
	}
	choice, err := guest.ChooseAccel(guest.AccelAuto)
	if err != nil {
		t.Fatal(err)
	}
	// With two emulated processors, domains with hardware virtualization die: see docs/xen.md.
	n, err := f.Launch(t.Context(), fleet.Options{Name: "xen1", Image: image, Accel: choice.Accel, VCPUs: 1, Memory: guest.XenMemory + 2*(512+48)<<20})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = n.Kill() })
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	in, _, err := f.Login(ctx, n)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = in.Close() })
	in.Patient() // dom0 is slow while domains compute
	return &Host{Dom0: in, Dial: in.Client().DialContext, Dir: "/var/tmp/unnest-run-test", Key: f.Key(), Uplink: "eth0", Emulated: choice.Accel == guest.TCG}, in
}

// hostWith builds an image, and boots a Xen host of it.
func hostWith(t *testing.T, recipe image.Recipe, step func(string)) (*Host, image.Image) {
	t.Helper()
	b := image.Builder{Cache: image.CacheDir(), Progress: step}
	image, err := b.Build(t.Context(), recipe)
	if err != nil {
		t.Fatal(err)
	}
	h, _ := bootHost(t, image)
	step("dom0 is up")
	return h, image
}

// An HVM domain has emulated devices only, for which its image has drivers.
func TestHVM(t *testing.T) {
	if os.Getenv("UNNEST_PRIVILEGED") == "" {
		t.Skip("set UNNEST_PRIVILEGED=1, as root")
	}
	if limits := doctor.XenDomains(t.Context(), doctor.System(image.CacheDir())); limits != "" {
		t.Skip(limits)
	}
	begin := time.Now()
	step := func(what string) { t.Logf("%4.0f s %s", time.Since(begin).Seconds(), what) }
	h, image := hostWith(t, image.DefaultRecipe().Xen().Emulated(), step)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if facts, err := h.Prepare(ctx); err != nil || !slices.Contains(facts.Kinds, HVM) {
		t.Fatalf("got %+v, %v", facts, err)
	}
	if err := h.SetImage(ctx, image, step); err != nil {
		t.Fatal(err)
	}
	d := enter(ctx, t, h, Config{Name: string(HVM), Kind: HVM, Number: 1, VCPUs: 1, Memory: 512 << 20}, step)
	if err := d.Err(ctx); err != nil {
		t.Errorf("a domain that runs: %v", err)
	}
	// Its device model ends, as if it crashed. Xen still lists the domain.
	if err := place.Run(ctx, h.Dom0, "sh", "-ec", `kill -SEGV "$(xenstore-read "/local/domain/$1/image/device-model-pid")"`, "kill", d.id); err != nil {
		t.Fatal(err)
	}
	watching, stop := context.WithTimeout(ctx, 2*time.Minute)
	defer stop()
	if err := d.Watch(watching); err != nil {
		t.Errorf("watch a domain without a device model: %v", err)
	}
	if err := d.Err(ctx); !errors.Is(err, ErrGone) || !strings.Contains(err.Error(), "its NIC in dom0 has ended with its device model") {
		t.Errorf("a domain without a device model: %v", err)
	}
	step("its device model has ended")
	if err := d.Destroy(ctx); err != nil {
		t.Error(err)
	}
	if all, err := h.List(ctx); err != nil || len(all) != 0 {
		t.Errorf("left: %+v, %v", all, err)
	}
	if err := h.Remove(ctx); err != nil {
		t.Error(err)
	}
}

// Debian's Xen is the hypervisor of a guest, which creates PV and PVH domains, or only PV domains where
// PVH is known to fail. Commands run in the domains, and Xen says what the domains use. A run that
// knows nothing of the domains removes them.
func TestDomains(t *testing.T) {
	if os.Getenv("UNNEST_PRIVILEGED") == "" {
		t.Skip("set UNNEST_PRIVILEGED=1, as root")
	}
	kinds := []Kind{PV, PVH}
	if limits := doctor.XenDomains(t.Context(), doctor.System(image.CacheDir())); limits != "" {
		t.Log("two PV domains: ", limits)
		kinds[1] = PV
	}
	begin := time.Now()
	step := func(what string) { t.Logf("%4.0f s %s", time.Since(begin).Seconds(), what) }
	h, image := hostWith(t, image.DefaultRecipe().Xen(), step)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	facts, err := h.Prepare(ctx)
	if err != nil || len(facts.Kinds) != 3 || !strings.HasPrefix(facts.Version, "4.17") {
		t.Fatalf("got %+v, %v", facts, err)
	}
	if _, err := h.Prepare(ctx); err == nil || !strings.Contains(err.Error(), "another run") {
		t.Errorf("a second run on the host: %v", err)
	}
	if err := h.SetImage(ctx, image, step); err != nil || !strings.HasPrefix(h.Image.Root, "/dev/") {
		t.Fatalf("image %+v, %v", h.Image, err)
	}
	var domains []*Domain
	for i, kind := range kinds {
		name := fmt.Sprintf("%s%d", kind, i+1)
		t.Run(name, func(t *testing.T) {
			domains = append(domains, enter(ctx, t, h, Config{Name: name, Kind: kind, Number: i + 1, VCPUs: 1, Memory: 512 << 20}, step))
		})
	}
	if len(domains) < len(kinds) {
		t.Fatal("not all domains run")
	}
	t.Run("Trace", func(t *testing.T) { testTrace(ctx, t, h, domains[0], domains[1]) })
	if all, err := h.List(ctx); err != nil || len(all) == 0 {
		t.Errorf("nothing to remove: %+v, %v", all, err)
	}
	next := Host{Dom0: h.Dom0, Dir: h.Dir}
	if err := next.Remove(ctx); err != nil {
		t.Error(err)
	}
	if all, err := h.List(ctx); err != nil || len(all) != 0 {
		t.Errorf("left: %+v, %v", all, err)
	}
	if out, err := place.Output(ctx, h.Dom0, "sh", "-c", "losetup --all; ls -A "+h.Dir+"; ls -d /sys/class/net/unnest0 2>&1"); !strings.HasPrefix(string(out), "ls: ") {
		t.Errorf("left: %s, %v", out, err)
	}
}

// enter creates a domain, runs commands in it, and reads what Xen says about it. The domain stays.
func enter(ctx context.Context, t *testing.T, h *Host, c Config, step func(string)) *Domain {
	d, err := h.Create(ctx, c)
	if err != nil {
		t.Fatal(err)
	}
	step("created " + c.Name)
	in, err := d.Login(ctx)
	if err != nil {
		t.Fatal(err)
	}
	step("entered " + c.Name)
	defer in.Close()
	guestType := strings.ToUpper(string(c.Kind)) // of a kernel that knows that it runs on Xen
	if c.Kind == HVM {
		guestType = ""
	}
	out, err := place.Output(ctx, in, "sh", "-ec", "hostname; cat /sys/hypervisor/guest_type 2>/dev/null || echo; echo x >/root/x; stat -f -c %T /var/lib/unnest/work; grep -c norandmaps /proc/cmdline || true")
	fixed := map[bool]int{true: 1}[h.Emulated]
	if want := fmt.Sprintf("%s\n%s\next2/ext3\n%d\n", c.Name, guestType, fixed); err != nil || string(out) != want {
		t.Errorf("got %q, %v; want %q", out, err, want)
	}
	if said := d.console(); !strings.Contains(said, "its console ends: ") {
		t.Errorf("the console of %s is not kept: %q", c.Name, said)
	}
	name := "unnest-run-test-" + c.Name
	if samples, err := top(ctx, h); err != nil || samples[0].Seconds[name] == 0 {
		t.Errorf("got %+v, %v", samples, err)
	}
	if all, err := h.List(ctx); err != nil || !slices.ContainsFunc(all, func(e Entry) bool { return e.Name == name }) {
		t.Errorf("domains %+v, %v", all, err)
	}
	return d
}

// testTrace compares what xentrace says of a domain that computes, and of one that does not, with what
// Xen accounts to them. Xen has one processor. A recording that is killed does not prevent the next one.
func testTrace(ctx context.Context, t *testing.T, h *Host, busy, idle *Domain) {
	in, err := busy.Login(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	computing, stop := context.WithCancel(ctx)
	process, err := in.Start(computing, place.Command{Args: []string{"sh", "-c", "while :; do :; done"}})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		stop()
		_ = process.Wait() // it was killed
	}()
	killed, kill := context.WithCancel(ctx)
	first, err := h.Trace(killed)
	if err != nil {
		t.Fatal(err)
	}
	kill()
	time.Sleep(5 * time.Second) // for what the end of ctx starts
	if trace, err := first.Stop(); err == nil {
		t.Errorf("a recording that was killed: %+v", trace)
	}
	tracing, err := h.Trace(ctx)
	if err != nil {
		t.Fatal(err)
	}
	const slept = 10 * time.Second
	begin, before := time.Now(), spent(ctx, t, h)
	time.Sleep(slept)
	after := spent(ctx, t, h)
	trace, err := tracing.Stop()
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("traced %v: %+v; accounts before and after %v, %v", trace.Window, trace.Domains, before, after)
	if took := time.Since(begin); trace.Window < slept || trace.Window > took+2*time.Second {
		t.Errorf("traced %v, want between %v and %v", trace.Window, slept, took)
	}
	of := func(d *Domain) Scheduled {
		id, err := strconv.Atoi(d.id)
		if err != nil {
			t.Fatal(err)
		}
		return trace.Domains[id]
	}
	var sum time.Duration
	for _, d := range trace.Domains {
		sum += d.CPU
	}
	if sum > trace.Window {
		t.Errorf("domains had %v of one processor in %v", sum, trace.Window)
	}
	b, i := of(busy), of(idle)
	if b.Executions == 0 || b.Preempted == 0 || b.CPU <= i.CPU || b.Waiting == 0 || len(trace.Domains) < 3 {
		t.Errorf("domains that compute and not: %+v, %+v", b, i)
	}
	// The account is in tenths of a second. It begins after the first record, ends before the last one, and is of
	// the sleep at least.
	if took := after[busy.id] - before[busy.id]; b.CPU < took-200*time.Millisecond || b.CPU > took+trace.Window-slept+200*time.Millisecond {
		t.Errorf("traced %v of %s, Xen's account has %v", b.CPU, busy.Name, took)
	}
}

// spent returns the CPU time of all domains, by ID, by Xen's own account.
func spent(ctx context.Context, t *testing.T, h *Host) map[string]time.Duration {
	t.Helper()
	all, err := h.List(ctx)
	if err != nil {
		t.Fatal(err)
	}
	times := map[string]time.Duration{}
	for _, e := range all {
		times[strconv.Itoa(e.ID)] = e.Time
	}
	return times
}

// top reads what xentop prints until it is killed.
func top(ctx context.Context, h *Host) ([]Sample, error) {
	var printed bytes.Buffer
	ctx, stop := context.WithTimeout(ctx, 20*time.Second)
	defer stop()
	process, err := h.Dom0.Start(ctx, place.Command{Args: TopArgs(), Stdout: &printed})
	if err != nil {
		return nil, err
	}
	_ = process.Wait() // it was killed
	return ParseTop(printed.String())
}
