package e2e

import (
	"path/filepath"
	"strings"
	"testing"
	"time"

	"unnest.io/unnest/internal/testbed/image"
)

// releasePackages are what a guest and its container need of a host.
const releasePackages = "qemu-system-x86,e2fsprogs,mmdebstrap,xz-utils,nftables,iproute2,kmod"

// On a host with Debian 13, so with its QEMU, a guest boots, and a container in it gets a NIC of its own
// from the host daemon. A second guest is restored from a snapshot that this QEMU has made.
func TestHostTrixie(t *testing.T) {
	unnest := unnestBinary(t)
	const script = `set -e
unnest=$1
. /etc/os-release; echo "release $VERSION_ID"
qemu-system-x86_64 --version | sed -n 's/^QEMU emulator version \([0-9]*\).*/qemu \1/p'
trap '$unnest vm down --all' EXIT
$unnest vm up --accel tcg --cold node1
$unnest vm up --accel tcg node2 2>&1 | grep 'boots' || true # it says so if it is not restored
for node in node1 node2; do
	$unnest vm ssh $node /etc/unnest/engine
	$unnest vm ssh $node nerdctl run --rm --network brfusion localhost/unnest/tools:1 sh -c 'echo "driver of eth0: $(busybox basename $(busybox readlink /sys/class/net/eth0/device/driver))"'
done
`
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	begin := time.Now()
	out := mustRun(t, filepath.Join(root, "hack/host"), "--share", filepath.Dir(unnest), "--share", image.CacheDir(), "--with", releasePackages,
		"trixie", "env", "UNNEST_CACHE="+image.CacheDir(), "bash", "-c", script, "_", unnest)
	t.Logf("%.0f s", time.Since(begin).Seconds())
	if want := "release 13\nqemu 10\n" + strings.Repeat("driver of eth0: virtio_net\n", 2); out != want {
		t.Errorf("got\n%s\nwant\n%s", out, want)
	}
}

// podmanPackages are Podman 5 of Debian 13 with what its containers need.
const podmanPackages = "podman,netavark,nftables,runc,busybox,iproute2,containernetworking-plugins"

// Podman 5 of Debian 13 runs the plugin of netavark, and makes units of the quadlets in examples.
func TestPodmanTrixie(t *testing.T) {
	unnestBinary(t)
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	test := filepath.Join(t.TempDir(), "brfusion.test")
	mustRun(t, "env", "CGO_ENABLED=0", "go", "test", "-trimpath", "-vet=off", "-c", "-o", test, "../cni/brfusion")
	in := []string{filepath.Join(root, "hack/host"), "--share", filepath.Dir(test), "--share", filepath.Join(root, "examples"), "--with", podmanPackages, "trixie"}
	units := mustRun(t, append(in, "env", "QUADLET_UNIT_DIRS="+filepath.Join(root, "examples/quadlet"), "/usr/libexec/podman/quadlet", "-dryrun")...)
	for _, want := range []string{"network create --ignore --driver unnest --opt server=10.201.0.1:7443 pods\n", "--network pods ", "Requires=pods-network.service\n"} {
		if !strings.Contains(units, want) {
			t.Errorf("the units do not contain %q:\n%s", want, units)
		}
	}
	begin := time.Now()
	out := mustRun(t, append(in, "env", "UNNEST_PRIVILEGED=1", "TMPDIR="+filepath.Dir(test), test, "-test.run", "^TestPodman$", "-test.v")...)
	t.Logf("TestPodman, %.0f s: %s", time.Since(begin).Seconds(), out)
	if !strings.Contains(out, "--- PASS: TestPodman ") {
		t.Error("TestPodman did not pass")
	}
}
