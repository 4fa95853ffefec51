package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	types100 "github.com/containernetworking/cni/pkg/types/100"

	"unnest.io/unnest/internal/check"
	"unnest.io/unnest/internal/check/localhost"
	"unnest.io/unnest/internal/hostapi/segment"
	"unnest.io/unnest/internal/hostd/status"
	"unnest.io/unnest/internal/testbed/fleet"
)

// hostloGuests returns the number of guests over which the pod is split: 2, or
// UNNEST_HOSTLO_GUESTS.
func hostloGuests(t *testing.T) int {
	t.Helper()
	text := os.Getenv("UNNEST_HOSTLO_GUESTS")
	if text == "" {
		return 2
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 2 || n > segment.MaxFractions {
		t.Fatalf("UNNEST_HOSTLO_GUESTS %q: want 2 to %d", text, segment.MaxFractions)
	}
	return n
}

// allCases reports whether all localhost cases run, in guests with the tools that some of them
// need. In emulated guests that takes minutes.
func allCases() bool { return os.Getenv("UNNEST_LOCALHOST") == "1" }

// someCases are the cases that run otherwise, in guests with the usual image.
var someCases = regexp.MustCompile(`^ping/ipv4/every` +
	`|^tcp/ipv4/(server-on-|both-ends-|dead-port-|server-moves-|client-of-a-killed-|many-short-|full-backlog-|held-|outgoing-|bulk-both-|traffic-within-)` +
	`|^tcp/ipv6/(server-on-loopback-|dual-stack-|dead-port-)` +
	`|^udp/ipv4/(server-on-loopback-|dead-port-|server-moves-|one-way-|burst-|two-clients-|largest-)` +
	`|^udp/ipv6/(server-on-loopback-|largest-)` +
	`|^address/ipv4/(tcp-server-on-127.0.0.2-|one-port-)` +
	`|^own/ipv[46]/tcp-server-is-reached-at-the-address-of-its-client` +
	`|^bind/` +
	`|^programs/ipv4/(grpc-|sidecar-)`)

// bindCases are about bind conflicts, which package loopback does not detect.
var bindCases = regexp.MustCompile("^bind/")

// outsideCases call addresses of other fractions, which have no network here.
const outsideCases = "^own/.*(another-address|another-fraction|loopback)"

// podName is the name of the pod, of its segment, and of the network namespace of its fraction
// in each guest.
const podName = "pod"

var podSegment = map[string]any{"segment": podName, "key": "known-to-the-guests-of-the-pod"}

// splitPod is a pod with a fraction in each of several guests.
type splitPod struct {
	*nodes
	in      []*node
	joined  map[*node]*types100.Result
	devices map[*node]string // of the guest, before the pod
}

// A pod over several guests has one localhost, also when the daemon is killed, when fractions
// come and go, and when one of them is hostile.
func TestHostlo(t *testing.T) {
	n := newNodes(t, nil)
	if allCases() {
		n.image = toolsImage(t, n.binaries)
	}
	p := &splitPod{nodes: n, joined: map[*node]*types100.Result{}, devices: map[*node]string{}}
	p.in = n.bootAll(hostloGuests(t), fleet.Options{Slots: 4})
	for _, m := range p.in {
		p.devices[m] = m.run("ls /sys/class/net")
		m.put("unnest-localhost")
		p.joined[m] = m.fraction(podName, podSegment)
		m.serve(podName)
	}
	t.Run("one localhost", p.oneLocalhost)
	t.Run("bind conflicts", p.bindConflicts)
	t.Run("one namespace", p.oneNamespace)
	t.Run("strangers", p.strangers)
	t.Run("daemon killed", p.daemonKilled)
	t.Run("hostile fraction", p.hostileFraction)
	t.Run("leave and join", p.leaveAndJoin)
	t.Run("nothing left", p.nothingLeft)
}

// fraction creates a network namespace and makes it a fraction of a pod.
func (m *node) fraction(container string, keys map[string]any) *types100.Result {
	m.nodes.t.Helper()
	m.run("ip netns add " + container)
	r, err := m.hostlo("ADD", container, keys)
	if err != nil {
		m.nodes.t.Fatalf("ADD %s on %s: %v", container, m.Name, err)
	}
	return r
}

// port is the port on which the fraction of a guest serves. It is different for each guest, and
// below the ports of the localhost cases.
func (m *node) port() int { return 8000 + m.Index }

// serve starts a server on the loopback of a container. It answers with the guest's name.
func (m *node) serve(container string) {
	m.nodes.t.Helper()
	m.run(fmt.Sprintf("mkdir -p /tmp/web && echo %s >/tmp/web/index.html && ip netns exec %s busybox httpd -p 127.0.0.1:%d -h /tmp/web",
		m.Name, container, m.port()))
}

// serveStream starts an iperf3 server for one client in a container, and waits until it listens.
func (m *node) serveStream(container, options string) {
	m.nodes.t.Helper()
	m.run("ip netns exec " + container + " iperf3 --server --one-off --daemon --port 5201 " + options)
	m.nodes.eventually("iperf3 listens", func() bool {
		_, err := m.try("ip netns exec "+container+` grep -q ':1451 [0-9A-F:]* 0A ' /proc/net/tcp /proc/net/tcp6`, "")
		return err == nil
	})
}

// ask returns the answer of the server on a port of a container's loopback. An error contains
// the output of the shell.
func (m *node) ask(container string, port int) (string, error) {
	out, err := m.try(fmt.Sprintf(`ip netns exec %s timeout 60 bash -c 'exec 3<>/dev/tcp/127.0.0.1/%d && printf "GET / HTTP/1.0\r\n\r\n" >&3 && tail -n 1 <&3'`,
		container, port), "")
	if err != nil {
		return "", fmt.Errorf("%w: %s", err, out)
	}
	return strings.TrimSpace(out), nil
}

// wantServed fails unless the fraction of the pod in m reaches those in all of the guests.
func (p *splitPod) wantServed(t *testing.T, m *node, by []*node) {
	t.Helper()
	for _, server := range by {
		if who, err := m.ask(podName, server.port()); err != nil || who != server.Name {
			t.Errorf("%s calls the server of %s: got %q, %v", m.Name, server.Name, who, err)
		}
	}
}

// wantRefused fails unless a port refuses a connection.
func wantRefused(t *testing.T, m *node, container string, port int) {
	t.Helper()
	who, err := m.ask(container, port)
	if err == nil || !strings.Contains(err.Error(), "refused") {
		t.Errorf("port %d in %s of %s: got %q, %v; want Connection refused", port, container, m.Name, who, err)
	}
}

// try runs the localhost cases with agents in a network namespace of the guests. Immediate
// events may take a second for each guest, because guests are emulated on few processors.
func (p *splitPod) try(t *testing.T, in []*node, container string, o localhost.Options) (outcomes []localhost.Outcome) {
	t.Helper()
	for _, m := range in {
		o.Fractions = append(o.Fractions, localhost.Fraction{
			Place: m.ssh, Args: []string{"env", toolPath, "ip", "netns", "exec", container, "/usr/local/bin/unnest-localhost", "agent"},
		})
	}
	if o.Patience == 0 {
		o.Patience = time.Duration(len(in)) * time.Second
	}
	if o.Only == nil && !allCases() {
		o.Only = someCases
	}
	begin := time.Now()
	ctx, cancel := beforeDeadline(t, time.Minute)
	defer cancel()
	if err := localhost.Run(ctx, o, func(out localhost.Outcome) {
		t.Logf("%-9s %-70s %6.2fs %s", out.Verdict(), out.Case, out.Duration.Seconds(), check.OneLine(out.Err)+out.NotThere)
		outcomes = append(outcomes, out)
	}); err != nil {
		t.Errorf("after %d cases: %v", len(outcomes), err)
	}
	selected := slices.DeleteFunc(localhost.Names(), func(name string) bool {
		return o.Only != nil && !o.Only.MatchString(name) || o.Skip != nil && o.Skip.MatchString(name)
	})
	if len(outcomes) != len(selected) || len(selected) == 0 {
		t.Errorf("%d of %d cases ran", len(outcomes), len(selected))
	}
	t.Logf("%d cases, %d agents, %v", len(outcomes), len(in), time.Since(begin).Round(time.Second))
	return outcomes
}

// beforeDeadline returns a context that ends a time before the deadline of the test, if any.
func beforeDeadline(t *testing.T, after time.Duration) (context.Context, context.CancelFunc) {
	t.Helper()
	if end, ok := t.Deadline(); ok {
		return context.WithDeadline(t.Context(), end.Add(-after))
	}
	return context.WithCancel(t.Context())
}

// wantAllPass fails unless all cases pass. On a busy machine, immediate events may take longer
// than usual: cases that fail are tried again with more patience.
func (p *splitPod) wantAllPass(t *testing.T, in []*node, container string, o localhost.Options) {
	t.Helper()
	var failed []string
	for _, out := range p.try(t, in, container, o) {
		if out.Verdict() != localhost.Pass {
			failed = append(failed, regexp.QuoteMeta(out.Case))
		}
	}
	if len(failed) == 0 {
		return
	}
	o.Only, o.Patience = regexp.MustCompile("^("+strings.Join(failed, "|")+")$"), time.Minute
	for _, out := range p.try(t, in, container, o) {
		if out.Verdict() != localhost.Pass {
			t.Errorf("%s: %s, want %s: %s", out.Case, out.Verdict(), localhost.Pass, check.OneLine(out.Err))
		}
	}
}

// ownAddresses gives a container addresses as the pod's network does.
func (m *node) ownAddresses(container string) {
	m.nodes.t.Helper()
	m.run(fmt.Sprintf("ip -n %[1]s address add 10.77.%[2]d.1/32 dev lo && ip -n %[1]s address add fd00:77:%[2]d::1/128 dev lo", container, m.Index))
}

func (p *splitPod) oneLocalhost(t *testing.T) {
	for _, m := range p.in {
		m.ownAddresses(podName)
	}
	p.wantAllPass(t, p.in, podName, localhost.Options{Skip: regexp.MustCompile(bindCases.String() + "|" + outsideCases)})
}

// Package loopback explains why two fractions can bind the same address, and why two clients
// on one port both get a connection. Exactly the cases that demand more fail, with these errors.
func (p *splitPod) bindConflicts(t *testing.T) {
	for _, out := range p.try(t, p.in, podName, localhost.Options{Only: bindCases}) {
		want := "which another fraction has bound; want EADDRINUSE$"
		switch {
		case out.Alone:
			want = "^$"
		case strings.HasSuffix(out.Case, "/two-clients-of-one-server-cannot-share-a-port"):
			want = "the second client on the same port ended with success, want EADDRNOTAVAIL$"
		case strings.HasSuffix(out.Case, "-on-port-0-never-share-a-port"):
			want = "have the same address "
		}
		if got := check.OneLine(out.Err); !regexp.MustCompile(want).MatchString(got) {
			t.Errorf("%s: got %q, want %q", out.Case, got, want)
		}
	}
}

// The same cases pass in one namespace of one guest.
func (p *splitPod) oneNamespace(t *testing.T) {
	const single = "single"
	m := p.in[0]
	m.run("ip netns add " + single + " && ip -n " + single + " link set lo up")
	m.ownAddresses(single)
	p.wantAllPass(t, slices.Repeat(p.in[:1], len(p.in)), single, localhost.Options{})
	m.run("ip netns del " + single)
}

// A fraction cannot join a pod without its key, and another pod of the same guests has another
// localhost.
func (p *splitPod) strangers(t *testing.T) {
	first, last := p.in[0], p.in[len(p.in)-1]
	other := map[string]any{"segment": "other", "key": "known-to-the-guests-of-another-pod"}
	last.fraction("other", other)
	last.run(fmt.Sprintf("ip netns exec other busybox httpd -p 127.0.0.1:%d -h /tmp/web", 8000))
	wantRefused(t, first, podName, 8000)
	wantRefused(t, last, podName, 8000)
	wantRefused(t, last, "other", first.port())

	first.run("ip netns add stranger")
	slots := p.guestStatus(first.Name).SlotsFree
	for _, c := range []struct {
		name  string
		keys  map[string]any
		code  uint
		words string
	}{
		{"wrong key", map[string]any{"key": other["key"]}, 7, "the key is not that of the segment"},
		{"another pod's segment", map[string]any{"segment": "other"}, 7, "the key is not that of the segment"},
		{"another mode", map[string]any{"mode": "plain"}, 7, "has mode unicast, not plain"},
		{"another network", map[string]any{"name": "another"}, 7, `is of network "e2e", not "another"`},
		{"a second fraction on the guest", nil, 11, "a pod has one fraction on a guest"},
	} {
		keys := maps.Clone(podSegment)
		maps.Copy(keys, c.keys)
		_, err := first.hostlo("ADD", "stranger", keys)
		wantCode(t, c.name, err, c.code, c.words)
	}
	if links := first.run("ip -n stranger -brief link"); strings.Contains(links, "eth0") {
		t.Errorf("refused ADDs have left %s", links)
	}
	if now := first.run("ls /sys/class/net"); now != p.devices[first] {
		t.Errorf("interfaces of %s: %q, before: %q", first.Name, now, p.devices[first])
	}
	p.eventually("all slots are free again", func() bool { return p.guestStatus(first.Name).SlotsFree == slots })
	if got := len(p.status().Segments); got != 2 {
		t.Errorf("got %d segments, want 2", got)
	}
	first.run("ip netns del stranger")
	last.end(t, "other", other)
}

// end deletes the endpoint of a container, and the container.
func (m *node) end(t *testing.T, container string, keys map[string]any) {
	t.Helper()
	m.run("ip netns pids " + container + " | xargs -r kill")
	if _, err := m.hostlo("DEL", container, keys); err != nil {
		t.Errorf("DEL %s on %s: %v", container, m.Name, err)
	}
	if left := m.run("ip -n " + container + " -brief link"); strings.Contains(left, "eth0") {
		t.Errorf("%s of %s still has %s", container, m.Name, left)
	}
	m.run("ip netns del " + container)
}

// segment returns the status of the pod's segment.
func (p *splitPod) segment(t *testing.T) status.Segment {
	t.Helper()
	for _, s := range p.status().Segments {
		if s.Pod == podName {
			return s
		}
	}
	t.Fatal("the host daemon has no segment of the pod")
	return status.Segment{}
}

// fractionOf returns the number of the fraction in a guest.
func (p *splitPod) fractionOf(t *testing.T, m *node) segment.Fraction {
	t.Helper()
	for _, f := range p.segment(t).Fractions {
		if f.Guest == m.Name && f.Member {
			return f.Fraction
		}
	}
	t.Fatalf("%s is not a member of the segment", m.Name)
	return 0
}

// wantChecked fails unless CHECK succeeds for every fraction.
func (p *splitPod) wantChecked(t *testing.T) {
	t.Helper()
	for _, m := range p.in {
		keys := maps.Clone(podSegment)
		keys["prevResult"] = p.joined[m]
		p.eventually("CHECK succeeds on "+m.Name, func() bool {
			_, err := m.hostlo("CHECK", podName, keys)
			if err != nil {
				t.Logf("CHECK on %s: %v", m.Name, err)
			}
			return err == nil
		})
	}
}

// The host daemon is killed while data flows. The next daemon takes the segment over unchanged.
// The pod notices neither.
func (p *splitPod) daemonKilled(t *testing.T) {
	server, client := p.in[0], p.in[1]
	before := p.segment(t)
	server.serveStream(podName, "--bind 127.0.0.1")
	type end struct {
		out string
		err error
	}
	ended := make(chan end, 1)
	go func() {
		out, err := client.try("ip netns exec "+podName+" iperf3 --client 127.0.0.1 --port 5201 --time 6 --json", "")
		ended <- end{out, err}
	}()
	time.Sleep(1500 * time.Millisecond)
	p.killDaemon()
	for _, m := range p.in {
		p.wantServed(t, m, p.in)
		wantRefused(t, m, podName, 8000)
	}
	p.fleet.Policy.Tenants[0].Limits.Broadcasts = broadcastLimit // for hostileFraction
	p.startDaemon()
	stream := <-ended
	var measured struct {
		Intervals []struct {
			Sum struct{ Bytes float64 }
		}
	}
	if err := json.Unmarshal([]byte(stream.out), &measured); stream.err != nil || err != nil {
		t.Fatalf("iperf3: %v, %v: %s", stream.err, err, stream.out)
	}
	late := 0.0 // a busy machine may send nothing in a second, but not in the second half
	for _, second := range measured.Intervals[len(measured.Intervals)/2:] {
		late += second.Sum.Bytes
	}
	if late == 0 {
		t.Errorf("no byte was sent after the kill: %s", stream.out)
	}
	for _, m := range p.in {
		p.guestStatus(m.Name) // waits until the daemon has found the guest
		p.wantServed(t, m, p.in)
	}
	after := p.segment(t)
	if !slices.Equal(after.Fractions, before.Fractions) || segment.Older(after.Generation, before.Generation) {
		t.Errorf("the segment changed from %+v to %+v", before, after)
	}
	p.wantChecked(t)
}

// A fraction leaves a running pod. Its ports then refuse connections of the others, and its lo
// is a normal loopback again. Then it joins again.
func (p *splitPod) leaveAndJoin(t *testing.T) {
	rest, m := p.in[:len(p.in)-1], p.in[len(p.in)-1]
	const all = "32768\t60999"
	if got := m.ports(); got != all {
		t.Errorf("ephemeral ports of the fraction: %q, want all of the kernel's", got)
	}
	if _, err := m.hostlo("DEL", podName, podSegment); err != nil {
		t.Errorf("DEL: %v", err)
	}
	for _, other := range rest {
		wantRefused(t, other, podName, m.port())
		p.wantServed(t, other, rest)
	}
	p.wantServed(t, m, []*node{m})
	wantRefused(t, m, podName, rest[0].port())
	if got := m.ports(); got != all {
		t.Errorf("ephemeral ports after DEL: %q, want the default of the kernel", got)
	}
	if left := m.run("tc -n " + podName + " filter show dev lo egress"); left != "" {
		t.Errorf("filters of lo after DEL: %s", left)
	}
	r, err := m.hostlo("ADD", podName, podSegment)
	p.check(err)
	p.joined[m] = r
	p.wantChecked(t)
	for _, m := range p.in {
		p.wantServed(t, m, p.in)
	}
}

// ports returns the range of ephemeral ports in the fraction of the pod.
func (m *node) ports() string {
	m.nodes.t.Helper()
	return strings.TrimSpace(m.run("ip netns exec " + podName + " cat /proc/sys/net/ipv4/ip_local_port_range"))
}

// nothingLeft ends the pod. Its guests and the host must be as before.
func (p *splitPod) nothingLeft(t *testing.T) {
	for _, m := range p.in {
		m.end(t, podName, podSegment)
		if now := m.run("ls /sys/class/net"); now != p.devices[m] {
			t.Errorf("interfaces of %s: %q, before: %q", m.Name, now, p.devices[m])
		}
		if got := p.guestStatus(m.Name).Attachments; got != 0 {
			t.Errorf("%s: got %d attachments, want 0", m.Name, got)
		}
	}
	if left := p.status().Segments; len(left) > 0 {
		t.Errorf("segments left: %+v", left)
	}
	if links := mustRun(t, "nsenter", "--net="+p.fleet.Lab.HostNS(), "ip", "-o", "link"); strings.Contains(links, "segment:") || strings.Contains(links, "hlo") {
		t.Errorf("links left on the host: %s", links)
	}
}
