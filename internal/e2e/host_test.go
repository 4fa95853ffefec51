package e2e

import (
	"path/filepath"
	"strings"
	"testing"
	"time"

	"unnest/internal/testbed/image"
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
$unnest vm up --cold node1
$unnest vm up node2 2>&1 | grep 'boots' || true # it says so if it is not restored
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
