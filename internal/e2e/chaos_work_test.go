//go:build chaos

package e2e

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"strings"
	"sync"
	"time"

	types100 "github.com/containernetworking/cni/pkg/types/100"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/status"

	"unnest.io/unnest/internal/hostapi/hostdpb"
)

// errLost ends a cycle whose guest was reset or replaced.
var errLost = errors.New("the guest was lost")

// work starts the workers, which end with ctx.
func (c *chaos) work(ctx context.Context, workers *sync.WaitGroup) {
	for k, g := range c.guests {
		w := &podWorker{chaos: c, guest: g, rand: rand.New(rand.NewPCG(c.seed, uint64(k+1)))}
		c.loop(ctx, workers, podPeriod, w.cycle, w.end)
		c.pods = append(c.pods, w)
		for range 2 {
			a := &apiWorker{chaos: c, guest: g}
			c.loop(ctx, workers, apiPeriod, a.cycle, a.close)
		}
	}
	one, two := c.guests[0], c.guests[1]
	c.loop(ctx, workers, segmentPeriod, func() error { return c.segmentCycle(one, two) }, nil)
	c.loop(ctx, workers, volumePeriod, func() error { return c.volumeCycle(one, two) }, nil)
}

// loop calls cycle once per period until ctx ends, and then end.
func (c *chaos) loop(ctx context.Context, workers *sync.WaitGroup, period time.Duration, cycle func() error, end func()) {
	guarded := func(f func() error) {
		c.gate.RLock()
		defer c.gate.RUnlock()
		if err := f(); err != nil && !errors.Is(err, errLost) {
			c.fail("%v", err)
		}
	}
	workers.Go(func() {
		for ctx.Err() == nil {
			next := time.Now().Add(period)
			guarded(cycle)
			time.Sleep(max(time.Until(next), 100*time.Millisecond))
		}
		if end != nil {
			guarded(func() error { end(); return nil })
		}
	})
}

// until calls try until it succeeds, for chaosPatience, or until the guest is lost.
func (c *chaos) until(g *chaosGuest, epoch int, what string, try func() error) error {
	for begin, wait := time.Now(), 100*time.Millisecond; ; wait = min(2*wait, 2*time.Second) {
		err := try()
		switch {
		case err == nil:
			c.took(time.Since(begin))
			return nil
		case g.lost(epoch):
			return errLost
		case time.Since(begin) > chaosPatience:
			return fmt.Errorf("%s: %s, for %v: %w", g.options.Name, what, chaosPatience, err)
		}
		time.Sleep(wait)
	}
}

func (c *chaos) took(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.waited = max(c.waited, d)
}

// apiWorker attaches and detaches VLANs by the daemon's API, from inside the guest: most
// operations, without the cost of a process in an emulated guest.
type apiWorker struct {
	*chaos
	guest  *chaosGuest
	epoch  int
	conn   *grpc.ClientConn
	client hostdpb.HostDaemonClient
}

func (w *apiWorker) close() {
	if w.conn != nil {
		_ = w.conn.Close()
		w.conn = nil
	}
}

// connect connects through the guest's SSH server, with its credentials.
func (w *apiWorker) connect(m *node, epoch int) error {
	if w.conn != nil && w.epoch == epoch {
		return nil
	}
	w.close()
	files, err := m.try("cat /etc/unnest/client.crt; echo ----; cat /etc/unnest/client.key; echo ----; cat /etc/unnest/ca.crt", "")
	parts := strings.Split(files, "\n----\n")
	if err != nil || len(parts) != 3 {
		return errors.Join(fmt.Errorf("read credentials: %d files, want 3: %s", len(parts), files), err)
	}
	pair, err := tls.X509KeyPair([]byte(parts[0]), []byte(parts[1]))
	if err != nil {
		return err
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM([]byte(parts[2]))
	w.conn, err = grpc.NewClient("passthrough:///"+daemonAddress,
		grpc.WithTransportCredentials(credentials.NewTLS(&tls.Config{Certificates: []tls.Certificate{pair}, RootCAs: roots})),
		grpc.WithContextDialer(func(context.Context, string) (net.Conn, error) { return m.dial() }))
	if err == nil {
		w.epoch, w.client = epoch, hostdpb.NewHostDaemonClient(w.conn)
	}
	return err
}

// temporary reports whether a request that was refused for this reason may succeed later.
func temporary(err error) bool {
	switch status.Code(err) {
	case codes.OK, codes.Unavailable, codes.DeadlineExceeded, codes.ResourceExhausted, codes.Aborted, codes.Canceled:
		return true
	}
	return false
}

func (w *apiWorker) cycle() error {
	m, epoch, up := w.guest.now()
	if !up {
		time.Sleep(time.Second)
		return nil
	}
	if err := w.until(w.guest, epoch, "connect to the daemon", func() error { return w.connect(m, epoch) }); err != nil {
		return err
	}
	name := fmt.Sprintf("api-%d", w.serial.Add(1))
	call := func(what string, f func(context.Context) error) error {
		var refused error
		err := w.until(w.guest, epoch, what+" "+name, func() error {
			ctx, cancel := context.WithTimeout(w.t.Context(), 20*time.Second)
			defer cancel()
			err := f(ctx)
			if !temporary(err) && !w.guest.lost(epoch) {
				refused = fmt.Errorf("%s %s in %s: %w", what, name, w.guest.options.Name, err)
				return nil
			}
			return err
		})
		return errors.Join(err, refused)
	}
	err := call("attach", func(ctx context.Context) error {
		r, err := w.client.AttachNIC(ctx, &hostdpb.AttachNICRequest{
			ContainerId: name, Interface: "eth0", Network: "api", Allocate: true, Mode: hostdpb.Mode_MODE_TRUNK,
		})
		if err == nil && (r.GetNic().GetVlan() == 0 || len(r.GetAddresses()) == 0) {
			err = fmt.Errorf("answer without VLAN or address: %v", r)
		}
		return err
	})
	if err == nil {
		w.count("op: attach a NIC on a VLAN")
	}
	detachErr := call("detach", func(ctx context.Context) error {
		_, err := w.client.DetachNIC(ctx, &hostdpb.DetachNICRequest{ContainerId: name, Interface: "eth0"})
		return err
	})
	if detachErr == nil {
		w.count("op: detach a NIC on a VLAN")
	}
	return errors.Join(err, detachErr)
}

// podWorker adds, verifies and deletes pods with NICs of their own, by the CNI plugin.
type podWorker struct {
	*chaos
	guest *chaosGuest
	rand  *rand.Rand
	epoch int
	shell *shell
	pods  []chaosPod
}

type chaosPod struct{ name, address string }

// open returns whether the guest is up, with a shell. After a loss the worker has no pods.
func (w *podWorker) open() (bool, error) {
	m, epoch, up := w.guest.now()
	if !up {
		return false, nil
	}
	if w.shell != nil && w.epoch == epoch {
		return true, nil
	}
	w.pods, w.epoch = nil, epoch
	var err error
	w.shell, err = m.openShell("bash")
	if err != nil && w.guest.lost(epoch) {
		err = errLost
	}
	return err == nil, err
}

func (w *podWorker) cycle() error {
	up, err := w.open()
	if !up {
		time.Sleep(time.Second)
		return err
	}
	switch n := w.rand.IntN(3); {
	case len(w.pods) < chaosPods && (n == 0 || len(w.pods) == 0):
		return w.add()
	case n == 1 && len(w.pods) > 1:
		return w.delete(w.rand.IntN(len(w.pods)))
	}
	return w.verify(w.pods[w.rand.IntN(len(w.pods))])
}

// end deletes all pods.
func (w *podWorker) end() {
	if up, err := w.open(); !up {
		if err != nil {
			w.fail("%v", err)
		}
		return
	}
	for len(w.pods) > 0 {
		if err := w.delete(0); err != nil {
			w.fail("%v", err)
			return
		}
	}
}

// cni runs a plugin in the guest for a container.
func cni(s *shell, verb, container string, config map[string]any) (string, error) {
	text, err := json.Marshal(config)
	if err != nil {
		return "", err
	}
	return s.do(fmt.Sprintf("CNI_COMMAND=%s CNI_CONTAINERID=%[2]s CNI_NETNS=/run/netns/%[2]s CNI_IFNAME=eth0 CNI_PATH=/usr/lib/cni /usr/lib/cni/%[3]s <<'END'\n%[4]s\nEND",
		verb, container, config["type"], text))
}

func chaosNetwork() map[string]any {
	return map[string]any{"cniVersion": "1.1.0", "name": "chaos", "type": "brfusion", "server": daemonAddress, "ipam": map[string]any{"type": "hostd"}}
}

func (w *podWorker) add() error {
	p := chaosPod{name: fmt.Sprintf("chaos-%d", w.serial.Add(1))}
	if _, err := w.shell.do("ip netns add " + p.name); err != nil {
		return w.orLost(err)
	}
	err := w.until(w.guest, w.epoch, "ADD "+p.name, func() error {
		out, err := cni(w.shell, "ADD", p.name, chaosNetwork())
		var r types100.Result
		if err == nil && json.Unmarshal([]byte(out), &r) == nil && len(r.IPs) > 0 {
			p.address = r.IPs[0].Address.IP.String()
			return nil
		}
		_, left := cni(w.shell, "DEL", p.name, chaosNetwork())
		return errors.Join(err, left)
	})
	if err != nil {
		_, _ = w.shell.do("ip netns del " + p.name)
		return w.orLost(err)
	}
	w.pods = append(w.pods, p)
	w.count("op: add a pod with a NIC of its own (CNI ADD)")
	return w.verify(p)
}

func (w *podWorker) delete(i int) error {
	p, what := w.pods[i], "op: delete a pod with a NIC of its own (CNI DEL)"
	if w.rand.IntN(5) == 0 {
		what = "op: end a pod whose DEL is lost"
	} else if err := w.until(w.guest, w.epoch, "DEL "+p.name, func() error {
		_, err := cni(w.shell, "DEL", p.name, chaosNetwork())
		return err
	}); err != nil {
		return w.orLost(err)
	}
	w.pods = append(w.pods[:i], w.pods[i+1:]...)
	w.count(what)
	_, err := w.shell.do("ip netns del " + p.name)
	return w.orLost(err)
}

func (w *podWorker) orLost(err error) error {
	if err != nil && w.guest.lost(w.epoch) {
		return errLost
	}
	return err
}

func (w *podWorker) gateway() string {
	if w.guest.options.Tenant == "red" {
		return "10.203.0.1"
	}
	return "10.201.0.1"
}

// verify pings the gateway, which answers at the latest after a fault has been repaired. Of a
// pod whose TAP a fault has deleted, CHECK reports the damage.
func (w *podWorker) verify(p chaosPod) error {
	if w.isDamaged(p.name) {
		return nil
	}
	err := w.until(w.guest, w.epoch, "pod "+p.name+" reaches its gateway", func() error {
		_, err := w.shell.do(fmt.Sprintf("ip netns exec %s busybox ping -c 1 -W 2 %s", p.name, w.gateway()))
		if err != nil && w.isDamaged(p.name) {
			return nil
		}
		return err
	})
	if err == nil {
		w.count("verified: a pod reaches its gateway")
	}
	return w.orLost(err)
}

func (c *chaos) isDamaged(pod string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.damaged[pod]
}

// segmentCycle makes a pod with a fraction in each of two guests, in which one is a server of
// the other, and ends it.
func (c *chaos) segmentCycle(guests ...*chaosGuest) error {
	name := fmt.Sprintf("split-%d", c.serial.Add(1))
	config := map[string]any{
		"cniVersion": "1.1.0", "name": "split", "type": "hostlo", "server": daemonAddress, "segment": name, "key": "known-to-the-guests-of-" + name,
	}
	var shells []*shell
	var epochs []int
	lost := func() bool {
		for i, g := range guests[:len(epochs)] {
			if g.lost(epochs[i]) {
				return true
			}
		}
		return false
	}
	for _, g := range guests {
		m, epoch, up := g.now()
		if !up {
			time.Sleep(time.Second)
			return nil
		}
		s, err := m.openShell("bash")
		if err != nil {
			time.Sleep(time.Second)
			return nil // it is lost, or a later cycle reports it
		}
		defer func() { _ = s.close() }() // the connection may have gone
		shells, epochs = append(shells, s), append(epochs, epoch)
	}
	err := func() error {
		for i, g := range guests {
			if _, err := shells[i].do(fmt.Sprintf("ip netns add %[1]s && ip -n %[1]s link set lo up", name)); err != nil {
				return err
			}
			err := c.until(g, epochs[i], "join "+name, func() error {
				_, err := cni(shells[i], "ADD", name, config)
				if err != nil {
					_, left := cni(shells[i], "DEL", name, config)
					err = errors.Join(err, left)
				}
				return err
			})
			if err != nil {
				return err
			}
			c.count("op: join a Hostlo segment (CNI ADD)")
		}
		if _, err := shells[0].do(fmt.Sprintf("mkdir -p /tmp/%[1]s && echo %[1]s >/tmp/%[1]s/index.html && nsenter --net=/run/netns/%[1]s busybox httpd -p 127.0.0.1:8080 -h /tmp/%[1]s", name)); err != nil {
			return err
		}
		err := c.until(guests[1], epochs[1], "the fractions of "+name+" share localhost", func() error {
			out, err := shells[1].do(fmt.Sprintf("timeout 10 ip netns exec %s bash -c '%s'", name, `exec 3<>/dev/tcp/127.0.0.1/8080 && printf "GET / HTTP/1.0\r\n\r\n" >&3 && while IFS= read -r line <&3; do who=$line; done; echo $who`))
			if err == nil && strings.TrimSpace(out) != name {
				return fmt.Errorf("answer of another pod: %q", out)
			}
			if lost() {
				return nil
			}
			return err
		})
		if err == nil {
			c.count("verified: the fractions of a pod in two guests share localhost")
		}
		return err
	}()
	for i, g := range guests {
		left := c.until(g, epochs[i], "leave "+name, func() error {
			_, err := cni(shells[i], "DEL", name, config)
			return err
		})
		if left == nil {
			c.count("op: leave a Hostlo segment (CNI DEL)")
			_, left = shells[i].do(fmt.Sprintf("for p in $(ip netns pids %[1]s); do kill $p; done; ip netns del %[1]s; rm -rf /tmp/%[1]s", name))
		}
		err = errors.Join(err, left)
	}
	if err != nil && lost() {
		return errLost
	}
	return err
}

// volumeCycle attaches a volume to two guests; the second reads what the first has written.
func (c *chaos) volumeCycle(guests ...*chaosGuest) error {
	token := fmt.Sprintf("token-%d", c.serial.Add(1))
	run := func(g *chaosGuest, epoch int, what, script, stdin string) (string, error) {
		var out string
		err := c.until(g, epoch, what, func() (err error) {
			m, now, up := g.now()
			if !up || now != epoch {
				return errLost
			}
			if out, err = m.try(script, stdin); err != nil {
				err = fmt.Errorf("%w: %s", err, out)
			}
			return err
		})
		return out, err
	}
	var errs []error
	for i, g := range guests {
		_, epoch, up := g.now()
		if !up {
			break
		}
		if _, err := run(g, epoch, "attach a volume", "grep -q ' /mnt/chaos ' /proc/mounts || unnest-volume attach volume chaos data /mnt/chaos", podKey); err != nil {
			errs = append(errs, err)
			break
		}
		c.count("op: attach a volume")
		script := "echo " + token + " >/mnt/chaos/token; cat /mnt/chaos/token"
		if i > 0 {
			script = "cat /mnt/chaos/token"
		}
		out, err := run(g, epoch, "use a volume", script, "")
		if err == nil && strings.TrimSpace(out) != token {
			err = fmt.Errorf("volume in %s has %q, want %q", g.options.Name, out, token)
		}
		if err == nil {
			c.count("verified: a guest reads what is in a volume")
		}
		errs = append(errs, err)
	}
	for _, g := range guests {
		// A volume stays in a guest that is reset, so the guest detaches it when it is back.
		err := errLost
		for errors.Is(err, errLost) {
			_, epoch, up := g.now()
			if c.t.Context().Err() != nil {
				return errLost
			}
			if !up {
				time.Sleep(200 * time.Millisecond)
				continue
			}
			_, err = run(g, epoch, "detach a volume", "unnest-volume detach volume chaos data /mnt/chaos", "")
		}
		if err == nil {
			c.count("op: detach a volume")
		}
		errs = append(errs, err)
	}
	err := errors.Join(errs...)
	if errors.Is(err, errLost) {
		return errLost
	}
	return err
}
