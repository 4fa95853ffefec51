package lab

import (
	"errors"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
)

func privileged(t *testing.T) {
	t.Helper()
	if os.Getenv("UNNEST_PRIVILEGED") != "1" {
		t.Skip("needs root and network namespaces: set UNNEST_PRIVILEGED=1")
	}
	t.Setenv("UNNEST_STATE", t.TempDir())
}

func TestCreateAndClose(t *testing.T) {
	privileged(t)
	l, err := Create("test-lab")
	if err != nil {
		t.Fatal(err)
	}
	if err := Do(l.HostNS(), func() error {
		for _, name := range []string{ManagementBridge, TenantBridge, "client"} {
			if _, err := netlink.LinkByName(name); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
		return nil
	}); err != nil {
		t.Error(err)
	}
	assertNAT(t, l)
	if _, err := Create("test-lab"); !errors.Is(err, ErrInUse) {
		t.Errorf("second lab of that name: got %v, want ErrInUse", err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	assertGone(t, l)
}

// assertNAT checks that clients reach a server on the tenant bridge, which sees the
// bridge's own address.
func assertNAT(t *testing.T, l *Lab) {
	t.Helper()
	const server = "10.201.7.7"
	var listener net.Listener
	if err := newNS("unnest-test-server"); err != nil {
		t.Fatal(err)
	}
	defer func() {
		removeServer := func() error { // the kernel removes it with its namespace, but later
			link, err := netlink.LinkByName("server")
			if err != nil {
				return err
			}
			return netlink.LinkDel(link)
		}
		if err := errors.Join(Do(l.HostNS(), removeServer), deleteNS("unnest-test-server")); err != nil {
			t.Error(err)
		}
	}()
	serverNS := nsPath("unnest-test-server")
	err := errors.Join(
		Do(l.HostNS(), func() error {
			ns, err := netns.GetFromPath(serverNS)
			if err != nil {
				return err
			}
			defer ns.Close()
			bridge, err := netlink.LinkByName(TenantBridge)
			if err != nil {
				return err
			}
			attrs := netlink.LinkAttrs{Name: "server", MasterIndex: bridge.Attrs().Index}
			err = netlink.LinkAdd(&netlink.Veth{LinkAttrs: attrs, PeerName: "eth0", PeerNamespace: netlink.NsFd(ns)})
			return errors.Join(err, linkUp("server"))
		}),
		Do(serverNS, func() (err error) {
			if err := addAddress("eth0", server+"/16"); err != nil {
				return err
			}
			listener, err = net.Listen("tcp", server+":0")
			return err
		}))
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	var conn net.Conn
	if err := Do(l.ClientNS(), func() (err error) {
		conn, err = net.DialTimeout("tcp", listener.Addr().String(), time.Minute)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	accepted, err := listener.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer accepted.Close()
	if got, _, _ := net.SplitHostPort(accepted.RemoteAddr().String()); got != TenantGateway {
		t.Errorf("the server sees the client as %s, want %s", got, TenantGateway)
	}
}

func assertGone(t *testing.T, l *Lab) {
	t.Helper()
	for _, path := range []string{l.HostNS(), l.ClientNS(), l.Dir} {
		if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s is left: %v", path, err)
		}
	}
	mounts, err := os.ReadFile("/proc/self/mounts")
	if err != nil || strings.Contains(string(mounts), "unnest-"+l.ID()) {
		t.Errorf("a mount is left (%v)", err)
	}
}

// Reap removes what a killed owner left, with its processes, and nothing that has an
// owner or is persistent.
func TestReap(t *testing.T) {
	privileged(t)
	dead, err := Create("test-dead")
	if err != nil {
		t.Fatal(err)
	}
	orphan := exec.Command("sh", "-c", "sleep 181.25; true", filepath.Join(dead.Dir, "socket"))
	orphan.Args[0] = "unnest"
	if err := orphan.Start(); err != nil {
		t.Fatal(err)
	}
	client := exec.Command("sleep", "61.5") // nothing but its namespace tells whose it is
	if err := Do(dead.ClientNS(), client.Start); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 2)
	go func() { ended <- orphan.Wait() }()
	go func() { ended <- client.Wait() }()
	if err := dead.lock.Close(); err != nil { // as the kernel does when the owner is killed
		t.Fatal(err)
	}
	kept, err := Create("test-kept")
	if err != nil {
		t.Fatal(err)
	}
	if err := kept.Release(); err != nil {
		t.Fatal(err)
	}
	owned, err := Create("test-owned")
	if err != nil {
		t.Fatal(err)
	}
	reaped, err := Reap(t.Context())
	if err != nil || strings.Join(reaped, " ") != "test-dead" {
		t.Errorf("reaped %v, %v; want test-dead alone", reaped, err)
	}
	assertGone(t, dead)
	if err := errors.Join(<-ended, <-ended); err == nil || strings.Count(err.Error(), "signal") != 2 {
		t.Errorf("orphan and client ended with %v, want both killed", err)
	}
	if kept, err = Open("test-kept"); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(kept.Close(), owned.Close()); err != nil {
		t.Error(err)
	}
}

// Clean also removes dead labs of other state directories, and those whose directory
// is gone. It touches no lab that is in use or persistent, and lists only in a dry run.
func TestClean(t *testing.T) {
	privileged(t)
	create := func(name string) *Lab {
		t.Helper()
		l, err := Create(name)
		if err != nil {
			t.Fatal(err)
		}
		return l
	}
	noDir, dead := create("test-nodir"), create("test-elsewhere")
	if err := errors.Join(noDir.lock.Close(), os.RemoveAll(noDir.Dir), dead.lock.Close()); err != nil {
		t.Fatal(err)
	}
	live, kept := create("test-live"), create("test-kept")
	defer func() {
		if err := errors.Join(live.Close(), (&Lab{Name: kept.Name, Dir: kept.Dir}).Close()); err != nil {
			t.Error(err)
		}
	}()
	if err := kept.Release(); err != nil {
		t.Fatal(err)
	}
	t.Setenv("UNNEST_STATE", t.TempDir())
	for _, dryRun := range []bool{true, false} {
		dirs, err := allDirs()
		if err != nil {
			t.Fatal(err)
		}
		// Other tests may have dead labs on this machine.
		dirs = slices.DeleteFunc(dirs, func(dir string) bool { return filepath.Dir(dir) != filepath.Dir(live.Dir) })
		removed, err := removeDead(t.Context(), dirs, dryRun)
		if want := []string{dead.Dir, noDir.Dir}; err != nil || !slices.Equal(removed, want) {
			t.Errorf("dry run %v: removed %v, %v; want %v", dryRun, removed, err, want)
		}
		if _, err := os.Stat(dead.HostNS()); (err == nil) != dryRun {
			t.Errorf("dry run %v: namespace of the dead lab: %v", dryRun, err)
		}
	}
	assertGone(t, dead)
	assertGone(t, noDir)
	for _, l := range []*Lab{live, kept} {
		for _, path := range []string{l.HostNS(), l.ClientNS(), l.Dir} {
			if _, err := os.Stat(path); err != nil {
				t.Errorf("lab %s: %v", l.Name, err)
			}
		}
	}
}

// A guest whose lab has neither a state directory nor namespaces is found by its
// command line. A QEMU that names another file next to the labs is not ours.
func TestRunningDirs(t *testing.T) {
	t.Setenv("UNNEST_STATE", t.TempDir())
	gone := filepath.Join(Root(), "run-gone")
	for _, name := range []string{"qemu-system-x86_64", "cat"} {
		cmd := exec.Command("sh")
		cmd.Args = []string{name, "-c", "sleep 61.75; true", "unix:" + filepath.Join(gone, "guests/n/"+name) + ",server=on"}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		defer func() { _, _ = cmd.Process.Kill(), cmd.Wait() }()
	}
	foreign := exec.Command("sh")
	foreign.Args = []string{"qemu-system-x86_64", "-c", "sleep 61.75; true", "file=" + filepath.Join(Root(), "media/drive.img")}
	if err := foreign.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _, _ = foreign.Process.Kill(), foreign.Wait() }()
	if got, err := runningDirs(); err != nil || !slices.Equal(slices.Compact(got), []string{gone}) {
		t.Errorf("got %v, %v; want %s, of QEMU only", got, err, gone)
	}
}

// A lab that cannot be looked at may be there.
func TestViewFails(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("UNNEST_STATE", file)
	if _, err := View("vms"); err == nil || errors.Is(err, ErrNoLab) || !strings.Contains(err.Error(), "find lab vms: ") {
		t.Errorf("got %v", err)
	}
}

func TestCreateBadName(t *testing.T) {
	for _, name := range []string{"", "Upper", "a/b", "-x", strings.Repeat("a", 33)} {
		if _, err := Create(name); err == nil || !strings.Contains(err.Error(), "lab name") {
			t.Errorf("%q: got %v, want an error about the name", name, err)
		}
	}
}

// A state directory in which no guest could start is refused before anything is made.
func TestCreateBadState(t *testing.T) {
	root, err := os.MkdirTemp("/tmp", "s")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(root)
	for _, dir := range []string{"a,b", strings.Repeat("d", 84-len(root+"//vms"))} {
		state := filepath.Join(root, dir)
		t.Setenv("UNNEST_STATE", state)
		l, err := Create("vms")
		if err == nil {
			err = l.Close()
		}
		if err == nil || !strings.HasSuffix(err.Error(), "want a path of at most 83 bytes without a comma: set UNNEST_STATE to another directory") {
			t.Errorf("%s: got %v", dir, err)
		}
		if _, err := os.Stat(state); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s was made (%v)", dir, err)
		}
	}
}

func TestNamesDir(t *testing.T) {
	tests := []struct {
		cmdline string
		want    bool
	}{
		{"qemu\x00-qmp\x00unix:/run/unnest/a/guests/n/qmp,server=on\x00", true},
		{"unnest\x00hostd\x00--state\x00/run/unnest/a\x00", true},
		{"unnest\x00hostd\x00--state=/run/unnest/a,x\x00", true},
		{"unnest\x00hostd\x00--state\x00/run/unnest/ab\x00", false},
		{"cat\x00/run/unnest/ab/x /run/unnest/a/x\x00", true},
		{"unnest\x00hostd\x00--state\x00/other/run/unnest/a\x00", false},
		{"cat\x00/other/run/unnest/a/x,path=/run/unnest/a/x\x00", true},
		{"", false},
	}
	for _, tt := range tests {
		if got := namesDir([]byte(tt.cmdline), "/run/unnest/a"); got != tt.want {
			t.Errorf("%q: got %v, want %v", tt.cmdline, got, tt.want)
		}
	}
}
