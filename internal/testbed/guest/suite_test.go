package guest

import (
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	"unnest.io/unnest/internal/testbed/image"

	"golang.org/x/sys/unix"

	"unnest.io/unnest/internal/testbed/place"
)

// suitePackages are tools of the benchmark suites. One of them brings a service.
var suitePackages = []string{"fio", "sysbench", "stress-ng", "p7zip-full", "nginx-light", "memcached", "apache2-utils"}

// nerdctlProgram is the container engine's command, as `make build` makes it.
const nerdctlProgram = "../../../bin/nerdctl"

// The containers of a guest with tools of benchmark suites have these tools, too, and
// start at once. No service of a package runs.
func TestSuiteGuest(t *testing.T) {
	privileged(t)
	if _, err := os.Stat(nerdctlProgram); err != nil {
		t.Fatalf("%v: run `make build`", err)
	}
	begin := time.Now()
	builder := image.Builder{
		Cache: image.CacheDir(), Progress: func(step string) { t.Log(time.Since(begin), step) },
		Files: map[string]string{"/usr/local/bin/nerdctl": nerdctlProgram},
	}
	built, err := builder.Build(t.Context(), image.SuiteRecipe(suitePackages))
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("image built in %v, %s", time.Since(begin), onDisk(t, built.Root))
	l := testLab(t)
	_, signer := testKey(t)
	g := testGuest(t, l, built, signer, func(c *Config) { c.VCPUs, c.Memory = 2, 1<<30 })
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	client, times, err := g.WaitReady(ctx, l.Dial, signer)
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	t.Logf("boot: %+v", times)
	if out, err := place.Output(ctx, client, "pidof", "nginx", "memcached"); err == nil {
		t.Errorf("services run unasked: %s", out)
	}
	for _, step := range []struct {
		name string
		args []string
	}{
		{"engine", []string{"/etc/unnest/engine"}},
		{"first container", []string{"nerdctl", "run", "--net", "host", "--name", "c", "-d", image.ContainerImage, "sleep", "600"}},
		{"second container", []string{"nerdctl", "run", "--rm", "--net", "host", image.ContainerImage, "true"}},
		{"tools", []string{"nerdctl", "exec", "c", "sh", "-ec", "sysbench --version; fio --version; stress-ng --version; 7z | head -3; nginx -v; ab -V | head -1"}},
		{"the same file", []string{"sh", "-ec", `
			[ "$(stat -c %i /usr/bin/sysbench)" = "$(nerdctl exec c stat -c %i /usr/bin/sysbench)" ]
			nerdctl exec c grep -q ' / / .*overlay' /proc/self/mountinfo
			nerdctl exec c sh -c 'echo changed >/etc/hostname; dd if=/dev/zero of=/var/tmp/big bs=1M count=64 2>/dev/null; rm /usr/bin/fio'
			[ "$(cat /etc/hostname)" = node1 ]; [ -x /usr/bin/fio ]; [ ! -e /var/tmp/big ]`}},
		{"a second container", []string{"nerdctl", "run", "--rm", "--net", "host", image.ContainerImage, "fio", "--version"}},
	} {
		begin := time.Now()
		out, err := place.Output(ctx, client, step.args...)
		if err != nil {
			t.Fatalf("%s: %v: %s", step.name, err, out)
		}
		t.Logf("%s: %v: %s", step.name, time.Since(begin), out)
	}
}

// onDisk returns the disk space of a sparse file as text.
func onDisk(t *testing.T, path string) string {
	t.Helper()
	var info unix.Stat_t
	if err := unix.Stat(path, &info); err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("%d MiB of %d MiB", info.Blocks*512>>20, info.Size>>20)
}
