package doctor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path"
	"regexp"
	"slices"

	"unnest.io/unnest/internal/netdev/share"
)

// tool is a binary that unnest runs.
type tool struct {
	name     string
	binary   string // empty: the name
	flag     string // prints its version; empty: --version
	install  string // how to install it
	socket   string // of its daemon; empty: it has none
	daemon   string // command that starts the daemon
	required bool
	measures bool     // only experiments need it
	driver   []string // where its driver for QEMU may be, which is a package of its own; nil: it has none
}

// tools are what the quick start runs besides QEMU, and the container engines for
// containers on the host itself.
var tools = []tool{
	{name: "mmdebstrap", install: "apt-get install mmdebstrap", required: true},
	{name: "mkfs.ext4", flag: "-V", install: "apt-get install e2fsprogs", required: true},
	{name: "xz", install: "apt-get install xz-utils", required: true},
	{name: "dpkg-deb", install: "apt-get install dpkg", required: true},
	{name: "modprobe", install: "apt-get install kmod", required: true},
	{name: "ip", flag: "-V", install: "apt-get install iproute2", required: true, measures: true},
	{name: "sockperf", install: "apt-get install sockperf", required: true, measures: true},
	{name: "iperf3", install: "apt-get install iperf3", required: true, measures: true},
	{name: "libvirt", binary: "libvirtd", install: "apt-get install libvirt-daemon-system, for guests that libvirt runs",
		driver: []string{"/usr/lib/x86_64-linux-gnu/libvirt/connection-driver/libvirt_driver_qemu.so", "/usr/lib64/libvirt/connection-driver/libvirt_driver_qemu.so"}},
	{name: "docker", install: "apt-get install docker.io", socket: "/var/run/docker.sock", daemon: "systemctl start docker (without systemd: dockerd &)"},
	{name: "containerd", install: "apt-get install containerd", socket: containerdSocket, daemon: startContainerd},
	{name: "podman", install: "apt-get install podman"},
	{name: "nerdctl", install: "put nerdctl of https://github.com/containerd/nerdctl/releases into PATH", socket: containerdSocket, daemon: startContainerd},
}

const (
	containerdSocket = "/run/containerd/containerd.sock"
	startContainerd  = "systemctl start containerd (without systemd: containerd &)"
)

// check checks whether the tool runs, has its driver and, if it has a daemon, whether that runs.
func (t tool) check(ctx context.Context, p Probes) Check {
	found, err := t.find(ctx, p)
	c := works(t.name, found, err, t.install)
	c.Required = t.required
	if err == nil && t.driver != nil && !slices.ContainsFunc(t.driver, func(path string) bool { return p.Stat(path) == nil }) {
		c.State, c.Remedy = Limited, "apt-get install libvirt-daemon-driver-qemu"
		c.Found += ", no " + path.Base(t.driver[0])
	}
	if err != nil || t.socket == "" {
		return c
	}
	if err := p.Dial(t.socket); err != nil {
		c.State, c.Remedy = Limited, t.daemon
		c.Found += ", not running: " + err.Error()
		return c
	}
	c.Found += ", running"
	return c
}

// debianKeyring has the keys that sign Debian's packages. mmdebstrap asks gpg about them, unless apt on this host
// trusts them already.
const debianKeyring = "/usr/share/keyrings/debian-archive-keyring.gpg"

// keys checks what proves that the packages of guests are Debian's. Ubuntu installs neither.
func keys(ctx context.Context, p Probes) []Check {
	name := path.Base(debianKeyring)
	keyring := works("debian keys", name, p.Stat(debianKeyring), "apt-get install debian-archive-keyring")
	if keyring.State == Missing {
		keyring.Found = "no " + name
	}
	checks := require(keyring)
	if text, err := p.ReadFile("/etc/os-release"); err == nil && osRelease(text)["ID"] == "debian" {
		return checks
	}
	return append(checks, tool{name: "gpg", install: "apt-get install gpg", required: true}.check(ctx, p))
}

// volumeServer checks the program that serves volumes of pods, and says what it is known not to do.
func volumeServer(p Probes) Check {
	program, err := p.VolumeServer()
	c := works("virtiofsd", program.Path, err, "apt-get install virtiofsd (on Debian 12: qemu-system-common), for volumes")
	if errors.Is(err, share.ErrNoServer) {
		c.Found = "not installed" // the error also says how to install it
	}
	if err == nil && !program.HostLocks {
		c.State, c.Found = Limited, program.Path+", locks of files hold within a guest only, and guests of Debian 12 have no shared mappings (MAP_SHARED)"
		c.Remedy = "for both, use a host with Debian 12"
	}
	return c
}

// find returns the version and the path of the tool, or an error if it does not run.
func (t tool) find(ctx context.Context, p Probes) (string, error) {
	binary, flag := cmp.Or(t.binary, t.name), cmp.Or(t.flag, "--version")
	path, err := p.LookPath(binary)
	if err != nil {
		return "", fmt.Errorf("no %s in PATH", binary)
	}
	out, err := p.Output(ctx, path, flag)
	if err != nil {
		return "", fmt.Errorf("run %s %s: %w", path, flag, err)
	}
	return firstVersion(out) + ", " + path, nil
}

var versionNumber = regexp.MustCompile(`\d+(\.\d+)+`)

// firstVersion returns the first version number in the output of a tool.
func firstVersion(out string) string { return cmp.Or(versionNumber.FindString(out), "version unknown") }
