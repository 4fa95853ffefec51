package guest

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"unnest.io/unnest/internal/testbed/image"

	"golang.org/x/crypto/ssh"

	"unnest.io/unnest/internal/netdev/tap"
	"unnest.io/unnest/internal/testbed/lab"
	"unnest.io/unnest/internal/testbed/place"
)

// privileged skips the test unless privileged tests are asked for.
func privileged(t *testing.T) {
	t.Helper()
	if os.Getenv("UNNEST_PRIVILEGED") != "1" {
		t.Skip("needs root, QEMU and network namespaces: set UNNEST_PRIVILEGED=1")
	}
}

// testImage returns an image without added files from the user's cache, so that Debian
// is unpacked once per machine.
func testImage(t *testing.T) image.Image {
	t.Helper()
	builder := image.Builder{Cache: image.CacheDir(), Progress: func(step string) { t.Log(step) }}
	image, err := builder.Build(t.Context(), image.DefaultRecipe())
	if err != nil {
		t.Fatal(err)
	}
	return image
}

func testLab(t *testing.T) *lab.Lab {
	t.Helper()
	l, err := lab.Create("test-" + strings.ToLower(rand.Text()[:8]))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	})
	return l
}

func testKey(t *testing.T) (ed25519.PrivateKey, ssh.Signer) {
	t.Helper()
	_, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	signer, err := ssh.NewSignerFromKey(key)
	if err != nil {
		t.Fatal(err)
	}
	return key, signer
}

func testGuest(t *testing.T, l *lab.Lab, image image.Image, signer ssh.Signer, change func(*Config)) *Guest {
	t.Helper()
	hostKey, _ := testKey(t)
	const mac = "52:54:00:00:00:02"
	c := Config{
		Name: "node1", Dir: l.GuestDir("node1"), Image: image, Accel: TCG, VCPUs: 1, Memory: 512 << 20, Slots: 2,
		Address: "10.200.0.2:22",
		Seed: Seed{
			Hostname: "node1", HostKey: hostKey, Authorized: signer.PublicKey(),
			Interfaces: []Interface{{MAC: mac, Name: "eth0", Address: "10.200.0.2/24"}},
		},
	}
	if err := os.Mkdir(c.Dir, 0o700); err != nil {
		t.Fatal(err)
	}
	err := lab.Do(l.HostNS(), func() error {
		f, err := tap.Open(tap.Device{Name: "node1m", Bridge: lab.ManagementBridge, MTU: lab.MTU})
		c.NICs = []NIC{{f, mac}}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	change(&c)
	g, err := Start(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.NICs[0].TAP.Close(); err != nil {
		t.Error(err)
	}
	return g
}

// A guest with Debian 13 boots, and its container engine runs a container of the tools.
func TestTrixie(t *testing.T) {
	privileged(t)
	recipe, err := image.DefaultRecipe().Of(image.Trixie)
	if err != nil {
		t.Fatal(err)
	}
	builder := image.Builder{Cache: image.CacheDir(), Progress: func(step string) { t.Log(step) }}
	image, err := builder.Build(t.Context(), recipe)
	if err != nil {
		t.Fatal(err)
	}
	l := testLab(t)
	_, signer := testKey(t)
	g := testGuest(t, l, image, signer, func(c *Config) { c.Memory = 1 << 30 })
	client, times, err := g.WaitReady(t.Context(), l.Dial, signer)
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	t.Logf("boot: %+v; %s", times, onDisk(t, image.Root))
	for command, want := range map[string]string{
		". /etc/os-release; echo $VERSION_ID": "13\n",
		// The image has no nerdctl of ours, so the engine has nothing to load.
		"rm /usr/share/unnest/images/*; touch /usr/share/unnest/images/none.tar; ln -s /bin/true /usr/local/bin/nerdctl; /etc/unnest/engine local && ctr version | grep -c Version": "2\n",
	} {
		out, err := place.Output(t.Context(), client, "sh", "-c", command)
		if err != nil || string(out) != want {
			t.Errorf("%s: %q, %v; want %q", command, out, err, want)
		}
	}
	if err := g.PowerDown(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestGuest(t *testing.T) {
	privileged(t)
	image, l := testImage(t), testLab(t)
	_, signer := testKey(t)
	g := testGuest(t, l, image, signer, func(*Config) {})
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	client, times, err := g.WaitReady(ctx, l.Dial, signer)
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	t.Logf("boot: %+v", times)
	out, err := place.Output(ctx, client, "hostname")
	if err != nil || strings.TrimSpace(string(out)) != "node1" {
		t.Errorf("hostname: got %q, %v", out, err)
	}
	const frequencies = `dmesg | sed -n 's/.*tsc: Detected \([0-9]*\)[.]\([0-9]*\) MHz.*/\1\2/p' | tail -n 1`
	out, err = place.Output(ctx, client, "sh", "-c", frequencies)
	if want := g.withCounter().counterKHz; want > 0 && (err != nil || strings.TrimSpace(string(out)) != strconv.FormatInt(want, 10)) {
		t.Errorf("frequency that the kernel uses: got %q kHz, %v, want %d", out, err, want)
	}
	start := time.Now()
	if err := g.pressPowerButton(ctx); err != nil { // PowerDown would kill it, should it be slow
		t.Errorf("the guest does not obey its power button: %v", err)
	}
	t.Logf("power-down: %v", time.Since(start))
	if err := g.PowerDown(ctx); err != nil {
		t.Error(err)
	}
}
