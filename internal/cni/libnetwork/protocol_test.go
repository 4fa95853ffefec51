package libnetwork_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"unnest.io/unnest/internal/cni/cnitest"
)

// call calls the driver as Docker does. It waits until the driver listens.
func (l *lab) call(method string, request map[string]any) (answer map[string]any, err error) {
	l.t.Helper()
	socket := fmt.Sprintf("/proc/%d/root/run/docker/plugins/unnest.sock", l.mounts.Process.Pid)
	c := http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(context.Context, string, string) (net.Conn, error) {
		return net.Dial("unix", socket)
	}}}
	body, err := json.Marshal(request)
	l.Must(err)
	var response *http.Response
	l.until("the driver listens", func() (err error) {
		response, err = c.Post("http://driver/"+method, "application/json", bytes.NewReader(body))
		return err
	})
	defer response.Body.Close()
	content, err := io.ReadAll(response.Body)
	l.Must(err)
	if err := json.Unmarshal(content, &answer); err != nil {
		l.t.Fatalf("%s: %s: %v", method, content, err)
	}
	if response.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s: %s", method, answer["Err"])
	}
	return answer, nil
}

func (l *lab) must(method string, request map[string]any) map[string]any {
	l.t.Helper()
	answer, err := l.call(method, request)
	if err != nil {
		l.t.Fatal(err)
	}
	return answer
}

// address requests an address, and so a NIC.
func (l *lab) address() string {
	l.t.Helper()
	return l.must("IpamDriver.RequestAddress", map[string]any{"PoolID": "10.201.0.0/16"})["Address"].(string)
}

func endpointRequest(id, address string) map[string]any {
	return map[string]any{"NetworkID": "n1", "EndpointID": id, "Interface": map[string]any{"Address": address}}
}

func (l *lab) restartDriver() {
	l.t.Helper()
	l.kill(l.driver, syscall.SIGKILL)
	l.startDriver()
}

// The driver may be killed between any two calls; the endpoint is known after it. Each call that removes something
// may come twice.
func TestCallsOfEndpoint(t *testing.T) {
	l := newDriver(t)
	a := l.address()
	l.restartDriver()
	r := endpointRequest("e1", a)
	created := l.must("NetworkDriver.CreateEndpoint", r)["Interface"].(map[string]any)
	if created["MacAddress"] != "02:00:00:00:00:01" || created["AddressIPv6"] != "fd00:201::1:1/64" || created["Address"] != nil {
		t.Errorf("created %v", created)
	}
	if _, err := l.call("NetworkDriver.CreateEndpoint", endpointRequest("e2", a)); err == nil || !strings.Contains(err.Error(), "another endpoint") {
		t.Errorf("a second endpoint with the address: got %v", err)
	}
	l.restartDriver()
	l.must("NetworkDriver.CreateEndpoint", r) // Docker repeats a call whose answer it has not got
	r["SandboxKey"] = "/none"
	joined := l.must("NetworkDriver.Join", r)
	if name := joined["InterfaceName"].(map[string]any); name["SrcName"] != "ens1" || name["DstPrefix"] != "eth" ||
		joined["Gateway"] != gateway4 || joined["GatewayIPv6"] != gateway6 {
		t.Errorf("joined %v", joined)
	}
	for _, method := range []string{"NetworkDriver.RevokeExternalConnectivity", "NetworkDriver.Leave", "NetworkDriver.DeleteEndpoint"} {
		l.restartDriver()
		l.must(method, r)
		l.must(method, r)
		if !l.host.has("10.201.1.1") {
			t.Errorf("after %s the address is another container's", method)
		}
	}
	for range 2 {
		l.restartDriver()
		l.must("IpamDriver.ReleaseAddress", map[string]any{"PoolID": "10.201.0.0/16", "Address": "10.201.1.1"})
		l.wantNoNICs()
	}
	if _, err := l.call("NetworkDriver.Join", r); err == nil || !strings.Contains(err.Error(), "has no NIC") {
		t.Errorf("join of an endpoint that is gone: got %v", err)
	}
}

// A release that comes late does not take the NIC of the container that has the address now.
func TestLateRelease(t *testing.T) {
	l := newDriver(t)
	a := l.address()
	l.must("NetworkDriver.CreateEndpoint", endpointRequest("e2", a))
	release := map[string]any{"PoolID": "10.201.0.0/16", "Address": "10.201.1.1"}
	l.must("IpamDriver.ReleaseAddress", release)
	if !l.host.has("10.201.1.1") {
		t.Error("the NIC of endpoint e2 is gone")
	}
	l.must("NetworkDriver.DeleteEndpoint", endpointRequest("e2", a))
	l.must("IpamDriver.ReleaseAddress", release)
	l.wantNoNICs()
}

// Docker's requests wait for a daemon that restarts, or comes up after the guest. One whose answer was lost gets the same NIC.
func TestDaemonAway(t *testing.T) {
	l := newDriver(t)
	l.must("Plugin.Activate", nil)
	l.host.stop()
	failed := make(chan error, 2)
	for _, method := range []string{"IpamDriver.RequestPool", "IpamDriver.RequestAddress"} {
		go func() {
			_, err := l.call(method, map[string]any{"PoolID": "10.201.0.0/16"})
			failed <- err
		}()
	}
	time.Sleep(2 * time.Second) // both meet a daemon that is away
	select {
	case err := <-failed:
		t.Fatalf("while the daemon is away: got %v", err)
	default:
	}
	f, serves := &fault{}, make(chan struct{})
	l.host.passed = f.passed
	f.arm("AttachNIC", func() {
		<-serves
		l.host.stop()
	})
	l.host.serve()
	close(serves)
	<-f.fired
	l.host.serve()
	for range 2 {
		if err := <-failed; err != nil {
			t.Error(err)
		}
	}
	if have := l.host.owners(); len(have) != 1 {
		t.Errorf("the daemon has %v, want one NIC", have)
	}
	l.must("IpamDriver.ReleaseAddress", map[string]any{"PoolID": "10.201.0.0/16", "Address": "10.201.1.1"})
	l.wantNoNICs()
}

// A request that fails while the daemon is away leaves nothing, whether the daemon has served it or not.
func TestFailedRequest(t *testing.T) {
	l := newGuest(t)
	l.away = "1s"
	l.startDriver()
	f := &fault{}
	l.host.passed = f.passed
	for _, served := range []bool{true, false} {
		if served {
			f.arm("AttachNIC", func() { l.host.stop() })
		} else {
			l.host.stop()
		}
		if _, err := l.call("IpamDriver.RequestAddress", map[string]any{"PoolID": "10.201.0.0/16"}); err == nil || !strings.Contains(err.Error(), "detach NIC") {
			t.Errorf("without the daemon: got %v", err)
		}
		l.host.serve()
		l.wantNoNICs()
	}
}

// A NIC in a container whose file is damaged stays there, and is known again.
func TestDamagedNIC(t *testing.T) {
	l := newDriver(t)
	l.must("NetworkDriver.CreateEndpoint", endpointRequest("e1", l.address()))
	l.Must(link(l.Guest, "ens1", func(nic netlink.Link) error { return netlink.LinkSetNsFd(nic, int(l.Pod.Fd())) }))
	l.kill(l.driver, syscall.SIGKILL)
	files, err := filepath.Glob(filepath.Join(l.Dir, "run", "docker", "nics", "*.json"))
	l.Must(err)
	for _, file := range files {
		l.Must(os.WriteFile(file, []byte("{"), 0o600))
		l.startDriver()
		l.until("the file is made again", func() error {
			content, err := os.ReadFile(file)
			if err == nil && !strings.Contains(string(content), "10.201.1.1/16") {
				err = fmt.Errorf("it has %s", content)
			}
			return err
		})
	}
	if !l.host.has("10.201.1.1") {
		t.Error("the NIC is gone")
	}
	l.must("IpamDriver.ReleaseAddress", map[string]any{"PoolID": "10.201.0.0/16", "Address": "10.201.1.1"})
	l.wantNoNICs()
}

// What Docker has not come back for is given back, and nobody else's NIC.
func TestSweep(t *testing.T) {
	l := newDriver(t)
	l.maxIdle = "1s"
	l.host.attachOther()
	l.address() // Docker is killed after RequestAddress
	l.must("NetworkDriver.CreateEndpoint", endpointRequest("e1", l.address()))
	l.restartDriver()
	l.until("only the other's NIC is left", func() error {
		if have := l.host.owners(); len(have) != 1 || have[0] != "pod" {
			return fmt.Errorf("the daemon has %v", have)
		}
		return nil
	})
	l.host.remove("pod")
	l.wantNoNICs()
}

// joinSegment has a container without a network namespace join a network with a segment, and returns Docker's request.
func (l *lab) joinSegment() map[string]any {
	l.must("NetworkDriver.CreateNetwork", map[string]any{
		"NetworkID": "n1", "Options": map[string]any{"com.docker.network.generic": map[string]any{"segment": "shop", "key": segmentKey}},
	})
	r := map[string]any{"NetworkID": "n1", "EndpointID": "e1", "SandboxKey": filepath.Join(l.Dir, "sandbox")}
	l.must("NetworkDriver.CreateEndpoint", r)
	l.must("NetworkDriver.Join", r)
	return r
}

// makeSandbox makes the network namespace of the container that has joined.
func (l *lab) makeSandbox() {
	l.t.Helper()
	l.Must(os.Symlink(cnitest.Path(l.Pod), filepath.Join(l.Dir, "sandbox")))
}

// joined waits until the driver has noted that the container is in the segment.
func (l *lab) joined() {
	l.t.Helper()
	l.until("the join is noted", func() error {
		content, err := os.ReadFile(filepath.Join(l.Dir, "run", "docker", "sandboxes", "e1.json"))
		if err == nil && !strings.Contains(string(content), `"Joined":true`) {
			err = fmt.Errorf("the file has %s", content)
		}
		return err
	})
}

// A container joins its segment even if the driver was killed before Docker made the container's network namespace.
func TestResumedJoin(t *testing.T) {
	l := newDriver(t)
	r := l.joinSegment()
	l.restartDriver()
	l.must("Plugin.Activate", nil)
	l.makeSandbox()
	l.until("the container is in the segment", func() error {
		if !l.host.inSegment() {
			return errors.New("the guest has no endpoint")
		}
		return nil
	})
	l.restartDriver()
	l.must("NetworkDriver.Leave", r)
	l.wantNoNICs()
}

// A driver that is killed when the endpoint is in the container already, but has not noted it, joins again.
func TestJoinKilled(t *testing.T) {
	l := newDriver(t)
	f := &fault{}
	l.host.passed = f.passed
	f.arm("Check", func() { l.kill(l.driver, syscall.SIGKILL) })
	r := l.joinSegment()
	l.makeSandbox()
	<-f.fired
	l.startDriver()
	l.joined()
	l.must("NetworkDriver.Leave", r)
	l.wantNoNICs()
}

// Docker may say nothing of a container that has ended, such as after a crash.
func TestLostContainer(t *testing.T) {
	l := newDriver(t)
	l.joinSegment()
	l.makeSandbox()
	l.joined()
	l.Must(os.Remove(filepath.Join(l.Dir, "sandbox")))
	l.until("the driver has left the segment", func() error {
		if l.host.inSegment() {
			return errors.New("the guest has an endpoint")
		}
		return nil
	})
	l.wantNoNICs()
}

// What goes on for a call that Docker has repeated ends with the endpoint.
func TestRepeatedJoin(t *testing.T) {
	l := newDriver(t)
	r := l.joinSegment()
	l.must("NetworkDriver.Join", r)
	l.must("NetworkDriver.Leave", r)
	l.makeSandbox()
	time.Sleep(3 * time.Second) // a join looks each second for the namespace
	if l.host.inSegment() {
		t.Error("the container has joined after it has left")
	}
	l.wantNoNICs()
}

// A join that fails after Docker's call is tried again.
func TestJoinTriedAgain(t *testing.T) {
	l := newDriver(t)
	r := l.joinSegment()
	l.host.stop()
	l.makeSandbox()
	l.until("the failure is said", func() error {
		log, err := os.ReadFile(filepath.Join(l.Dir, "nsenter.log"))
		if err == nil && !strings.Contains(string(log), "join segment; trying again") {
			err = errors.New("the log does not say it")
		}
		return err
	})
	l.host.serve()
	l.until("the container is in the segment", func() error {
		if !l.host.inSegment() {
			return errors.New("the guest has no endpoint")
		}
		return nil
	})
	l.must("NetworkDriver.Leave", r)
	l.wantNoNICs()
}

// A damaged file, and that of an earlier driver, which has the path alone, keep no other container from joining, and are removed
// when their containers leave.
func TestDamagedSandboxes(t *testing.T) {
	l := newDriver(t)
	dir := filepath.Join(l.Dir, "run", "docker", "sandboxes")
	l.Must(os.MkdirAll(dir, 0o755))
	l.Must(os.WriteFile(filepath.Join(dir, "e0.json"), []byte(`"/run/docker/netns/gone"`), 0o600))
	l.Must(os.WriteFile(filepath.Join(dir, "e9.json"), []byte(`{`), 0o600))
	l.must("NetworkDriver.CreateNetwork", map[string]any{
		"NetworkID": "n1", "Options": map[string]any{"com.docker.network.generic": map[string]any{"segment": "shop", "key": segmentKey}},
	})
	r := map[string]any{"NetworkID": "n1", "EndpointID": "e1", "SandboxKey": fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), l.Pod.Fd())}
	l.must("NetworkDriver.CreateEndpoint", r)
	l.must("NetworkDriver.Join", r)
	if !l.host.inSegment() {
		t.Error("the container is not in its segment")
	}
	for _, id := range []string{"e1", "e0", "e9"} {
		l.must("NetworkDriver.Leave", map[string]any{"NetworkID": "n1", "EndpointID": id})
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("after all have left: %v, %v", left, err)
	}
	l.must("NetworkDriver.DeleteNetwork", map[string]any{"NetworkID": "n1"})
	l.wantNoNICs()
}
