package libnetwork_test

import (
	"context"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httputil"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// realSocket is the driver's if the test answers Docker in its place.
const realSocket = "/run/unnest-driver.sock"

// fault ends a program at a step. The calls that pass are of Docker to the driver, and of the driver to the daemon.
type fault struct {
	mu    sync.Mutex
	step  string // empty: no program ends
	end   func()
	fired chan struct{}
}

var errLost = errors.New("the answer is lost")

// passed is called when a call was served, before its caller has the answer. It returns errLost if a program has ended.
func (f *fault) passed(call string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if call != f.step {
		return nil
	}
	f.step = ""
	f.end()
	close(f.fired)
	return errLost
}

func (f *fault) arm(step string, end func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.step, f.end, f.fired = step, end, make(chan struct{})
}

// disarm reports whether the program has ended, and ends none from now on.
func (f *fault) disarm() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	fired := f.step == ""
	f.step = ""
	return fired
}

// between puts a server between Docker and the driver, at which calls pass f. Like the socket of systemd's unit it stays while no driver runs.
func (l *lab) between(f *fault) {
	l.t.Helper()
	inside := filepath.Join("/proc", strconv.Itoa(l.mounts.Process.Pid), "root")
	listener, err := net.Listen("unix", filepath.Join(inside, "run/docker/plugins/unnest.sock"))
	l.Must(err)
	server := &http.Server{ErrorLog: log.New(io.Discard, "", 0), Handler: &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) { r.Out.URL.Scheme, r.Out.URL.Host = "http", "driver" },
		Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (c net.Conn, err error) {
			for {
				if c, err = net.Dial("unix", filepath.Join(inside, realSocket)); err == nil || ctx.Err() != nil {
					return c, err
				}
				time.Sleep(10 * time.Millisecond)
			}
		}},
		ModifyResponse: func(r *http.Response) error { return f.passed(filepath.Base(r.Request.URL.Path)) },
		// Docker sees the end of a driver as the end of its connection.
		ErrorHandler: func(http.ResponseWriter, *http.Request, error) { panic(http.ErrAbortHandler) },
	}}
	go func() { _ = server.Serve(listener) }()
	l.t.Cleanup(func() { _ = server.Close() })
}

// Docker, the driver or the daemon ends in the middle of each step of a container's start and removal. Afterwards the
// container can be removed, its network has no active endpoints, and nothing is left. All 32 ends take minutes: they happen with UNNEST_ROUNDS=1
// only, and every third of them without it.
func TestCrashAtEachStep(t *testing.T) {
	const pods, shop = "pods", "shop"
	create := map[string][]string{
		pods: {"--ipam-driver", "unnest"}, shop: {"--ipam-driver", "null", "-o", "segment=shop", "-o", "key=" + segmentKey},
	}
	link := map[string]string{pods: "eth0", shop: "hostlo0"}
	steps := map[string][]string{
		pods: {
			"IpamDriver.RequestAddress", "NetworkDriver.CreateEndpoint", "NetworkDriver.Join", "NetworkDriver.ProgramExternalConnectivity",
			"NetworkDriver.RevokeExternalConnectivity", "NetworkDriver.Leave", "NetworkDriver.DeleteEndpoint", "IpamDriver.ReleaseAddress",
			"AttachNIC", "DetachNIC",
		},
		shop: {"NetworkDriver.CreateEndpoint", "NetworkDriver.Join", "NetworkDriver.Leave", "NetworkDriver.DeleteEndpoint", "JoinSegment", "LeaveSegment"},
	}
	f, ends := &fault{}, 0
	l := newGuest(t)
	l.socketOfDriver, l.away = realSocket, "3s" // the daemon comes back after the container has failed to start
	l.startDriver()
	l.between(f)
	l.host.passed = f.passed
	l.startAll()
	for _, network := range []string{pods, shop} {
		for _, step := range steps[network] {
			toDaemon := !strings.Contains(step, ".")
			for _, program := range []string{"dockerd", "driver", "daemon"} {
				if program == "daemon" && !toDaemon || program == "dockerd" && toDaemon {
					continue
				}
				if ends++; ends%3 != 0 && os.Getenv("UNNEST_ROUNDS") == "" {
					continue
				}
				t.Run(program+" at "+step+" of "+network, func(t *testing.T) {
					l.t = t
					l.do(slices.Concat([]string{"network", "create", "-d", "unnest"}, create[network], []string{network})...)
					f.arm(step, map[string]func(){
						"dockerd": func() { l.kill(l.docker, syscall.SIGKILL) },
						"driver":  func() { l.kill(l.driver, syscall.SIGKILL) },
						"daemon":  func() { l.host.stop() },
					}[program])
					done := make(chan struct{})
					go func() {
						defer close(done)
						_, _ = l.try("run", "-d", "--name", "web", "--network", network, "-p", "8080:80", "box", "sleep", "1000")
						_, _ = l.try("rm", "-f", "web") // it fails if Docker has ended
					}()
					select {
					case <-f.fired:
					case <-done:
					}
					if !f.disarm() {
						t.Fatalf("no call of %s", step)
					}
					if program == "driver" {
						l.startDriver()
					}
					<-done
					switch program {
					case "daemon":
						l.host.serve()
					case "dockerd":
						l.startDocker()
					}
					if l.do("ps", "-aq") != "" {
						l.do("rm", "-f", "web")
					}
					l.do("run", "-d", "--name", "next", "--network", network, "box", "sleep", "1000")
					l.until("the next container has its link", func() error {
						_, err := l.try("exec", "next", "busybox", "test", "-d", "/sys/class/net/"+link[network])
						return err
					})
					l.do("rm", "-f", "next")
					l.do("network", "rm", network)
					l.maxIdle = "1s" // all containers are gone
					l.restartDriver()
					l.wantNoNICs()
					if l.host.inSegment() {
						t.Error("the guest is still in the segment")
					}
					l.maxIdle = "15m"
					l.restartDriver()
				})
			}
		}
	}
	l.t = t
	l.createNetwork()
	l.do("run", "--rm", "--network", pods, "-p", "8080:80", "box", "busybox", "ping", "-c1", "-w10", gateway4)
	l.do("network", "rm", pods)
}
