package fleet

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"unnest.io/unnest/internal/hostd/record"
	"unnest.io/unnest/internal/testbed/guest"
	"unnest.io/unnest/internal/testbed/image"
	"unnest.io/unnest/internal/testbed/lab"
	"unnest.io/unnest/internal/testbed/place"
)

// The daemon gets the addresses of the inner guest, and other processes get its image.
func TestStateNested(t *testing.T) {
	f := openFleet(t)
	n := newNode(t, f)
	inner := image.Image{Digest: "abc", Kernel: "/cache/vmlinux", Root: "/cache/root.ext4"}
	if err := n.save(f.Lab.Dir, Options{Nested: &inner}, issued); err != nil {
		t.Fatal(err)
	}
	saved, err := readState(n.Dir)
	if err != nil || saved.Nested == nil || *saved.Nested != inner {
		t.Errorf("got %+v, %v; want the image %+v", saved.Nested, err, inner)
	}
	p := addressesOf(3)
	got := bootNIC(p.nestedTAP, p.nestedMAC, p.nestedIP)
	if got.TAP != "g3nested" || got.MAC != "52:54:00:ca:00:03" || len(got.Addresses) != 1 || got.Addresses[0] != netip.MustParseAddr("10.201.255.4") {
		t.Errorf("got %+v", got)
	}
	content, err := os.ReadFile(record.Path(f.Lab.Dir, n.Name))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{got.TAP, got.MAC, got.Addresses[0].String()} {
		if !strings.Contains(string(content), `"`+want+`"`) {
			t.Errorf("no %s in the record:\n%s", want, content)
		}
	}
}

// A guest gets the disks and the processor for an inner guest only on request.
func TestConfigNested(t *testing.T) {
	f := openFleet(t)
	credentials, err := f.authority.Issue("node1")
	if err != nil {
		t.Fatal(err)
	}
	inner := image.Image{Kernel: "/k", Initrd: "/i", Root: "/r"}
	tests := []struct {
		name   string
		accel  guest.Accel
		nested *image.Image
		cpu    string
		disks  int
	}{
		{"no guest in it", guest.TCG, nil, "", 0},
		{"emulated", guest.TCG, &inner, "EPYC,+svm,+npt", 3},
		{"the host's processor", guest.KVM, &inner, "", 3},
	}
	for _, tt := range tests {
		c, err := f.config(Options{Name: "node1", Accel: tt.accel, Nested: tt.nested}, addressesOf(1), credentials, "/state")
		if err != nil || c.CPU != tt.cpu || len(c.Disks) != tt.disks {
			t.Errorf("%s: got CPU %q, disks %v, %v; want %q, %d disks", tt.name, c.CPU, c.Disks, err, tt.cpu, tt.disks)
		}
	}
}

func TestLaunchNestedRefuses(t *testing.T) {
	f := openFleet(t)
	n := newNode(t, f)
	inner := image.Image{Digest: "abc"}
	tests := []struct {
		name, want string
		launched   Options // of the parent
		o          Options
	}{
		{"bad name", "guest name", Options{Nested: &inner}, Options{Name: "../up"}},
		{"parent not made for it", "set Options.Nested", Options{}, Options{Name: "inner"}},
		{"another image", "image xyz", Options{Nested: &inner}, Options{Name: "inner", Image: image.Image{Digest: "xyz"}}},
		{"deeper still", "cannot run guests", Options{Nested: &inner}, Options{Name: "inner", Nested: &inner}},
	}
	for _, tt := range tests {
		if err := n.save(f.Lab.Dir, tt.launched, issued); err != nil {
			t.Fatal(err)
		}
		if got, err := f.LaunchNested(t.Context(), n, tt.o); got != nil || err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: got %v, %v; want %q", tt.name, got, err, tt.want)
		}
	}
}

// unnestProgram is the binary with the host daemon, as `make build` makes it.
const unnestProgram = "../../../bin/unnest"

// A guest boots in a guest with hardware virtualization, is reached from the host
// through the daemon's filter, can use its own address only, and ends alone or with its
// outer guest.
func TestNestedGuest(t *testing.T) {
	if os.Getenv("UNNEST_PRIVILEGED") != "1" {
		t.Skip("needs root, QEMU and network namespaces: set UNNEST_PRIVILEGED=1")
	}
	outer, inner := build(t, image.HypervisorRecipe()), build(t, image.DefaultRecipe())
	choice, err := guest.ChooseAccel(guest.AccelAuto)
	if err != nil {
		t.Fatal(err)
	}
	l, err := lab.Create("test-" + strings.ToLower(rand.Text()[:8]))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	})
	f, err := Open(l)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 15*time.Minute)
	defer cancel()
	parent, err := f.Launch(ctx, Options{
		Name: "outer", Image: outer, Accel: choice.Accel, VCPUs: 2, Memory: 1536 << 20, Slots: 2, Nested: &inner,
	})
	if err != nil {
		t.Fatal(err)
	}
	outside, times, err := f.Login(ctx, parent)
	if err != nil {
		t.Fatal(err)
	}
	defer outside.Close()
	t.Logf("outer guest (%s): %+v", choice.Reason, times)

	if n, err := f.LaunchNested(ctx, parent, Options{Name: "inner", VCPUs: 1, Memory: 1537 << 20}); n != nil || err == nil || !strings.Contains(err.Error(), "give it more") {
		t.Fatalf("more memory than there is: got %v, %v", n, err)
	}
	n := launchNested(ctx, t, f, parent)
	inside, times, err := f.Login(ctx, n.Node)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("inner guest (%s: %s): %+v", n.Choice.Accel, n.Choice.Reason, times)
	if n.Choice.Accel != guest.KVM {
		t.Errorf("accelerator is %+v, want kvm", n.Choice)
	}
	if out, err := place.Output(ctx, inside, "hostname"); err != nil || strings.TrimSpace(string(out)) != "inner" {
		t.Errorf("hostname: got %q, %v", out, err)
	}
	assertKeepsToItself(ctx, t, f, inside, n)
	if second, err := f.LaunchNested(ctx, parent, Options{Name: "second", VCPUs: 1, Memory: 512 << 20}); second != nil || err == nil || !strings.Contains(err.Error(), "runs in this one already") {
		t.Errorf("a second one: got %v, %v", second, err)
	}
	if err := n.Err(); err != nil {
		t.Errorf("the inner guest runs, but: %v", err)
	}

	begin := time.Now()
	if err := errors.Join(n.Kill(), n.Kill()); err != nil {
		t.Fatal(err)
	}
	t.Logf("killed in %v: %v", time.Since(begin), n.Err())
	if err := n.Err(); !errors.Is(err, guest.ErrDied) {
		t.Errorf("got %v, want ErrDied", err)
	}
	if out, err := place.Output(ctx, outside, "pidof", "qemu-system-x86_64"); err == nil {
		t.Errorf("QEMU is left in the outer guest: %s", out)
	}
	if err := inside.Close(); err != nil {
		t.Error(err)
	}

	again := launchNested(ctx, t, f, parent)
	waited := make(chan error, 1)
	go func() {
		_, _, err := f.Login(ctx, again.Node)
		waited <- err
	}()
	if err := parent.Kill(); err != nil {
		t.Fatal(err)
	}
	select {
	case <-again.Done():
	case <-time.After(time.Minute):
		t.Fatal("the inner guest does not end with the outer one")
	}
	if err := again.Err(); !errors.Is(err, guest.ErrDied) || !strings.Contains(err.Error(), "with its outer guest") {
		t.Errorf("got %v, want that the outer guest died", err)
	}
	if err := <-waited; !errors.Is(err, guest.ErrBoot) || !errors.Is(err, guest.ErrDied) {
		t.Errorf("waiting: got %v, want ErrBoot and ErrDied", err)
	}
}

func build(t *testing.T, r image.Recipe) image.Image {
	t.Helper()
	b := image.Builder{Cache: image.CacheDir(), Progress: func(step string) { t.Log(step) }}
	begin := time.Now()
	image, err := b.Build(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("image %s: %v", image.Digest, time.Since(begin))
	return image
}

func launchNested(ctx context.Context, t *testing.T, f *Fleet, parent *Node) *Nested {
	t.Helper()
	begin := time.Now()
	n, err := f.LaunchNested(ctx, parent, Options{Name: "inner", VCPUs: 1, Memory: 512 << 20})
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("inner guest launched in %v", time.Since(begin))
	return n
}

// assertKeepsToItself checks that the guest reaches the host by its own address and,
// when the daemon runs, by no other.
func assertKeepsToItself(ctx context.Context, t *testing.T, f *Fleet, inside place.Place, n *Nested) {
	t.Helper()
	ping := func(from string) error {
		return place.Run(ctx, inside, "busybox", "ping", "-c", "1", "-w", "3", "-I", from, lab.TenantGateway)
	}
	const foreign = "10.201.0.250"
	if err := place.Run(ctx, inside, "ip", "address", "add", fmt.Sprintf("%s/%d", foreign, lab.TenantPrefix), "dev", "eth0"); err != nil {
		t.Fatal(err)
	}
	if err := ping(foreign); err != nil {
		t.Fatalf("without the daemon it may send from any address: %v", err)
	}
	if err := f.StartDaemon(ctx, unnestProgram); err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(2 * time.Minute); ping(foreign) == nil; {
		if time.Now().After(end) {
			t.Fatalf("it may send from %s", foreign)
		}
	}
	if err := ping(n.TenantIP); err != nil {
		t.Errorf("its own address: %v", err)
	}
}
