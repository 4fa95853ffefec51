package e2e

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	types100 "github.com/containernetworking/cni/pkg/types/100"

	"unnest/internal/check"
	"unnest/internal/check/localhost"
	"unnest/internal/hostapi/segment"
	"unnest/internal/hostd/status"
	"unnest/internal/testbed/fleet"
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
	`|^udp/ipv4/(server-on-loopback-|dead-port-|server-moves-|one-way-|largest-)` +
	`|^udp/ipv6/(server-on-loopback-|largest-)` +
	`|^address/ipv4/(tcp-server-on-127.0.0.2-|one-port-)` +
	`|^bind/` +
	`|^programs/ipv4/(grpc-|sidecar-)`)

// bindCases are about bind conflicts, which package loopback does not detect.
var bindCases = regexp.MustCompile("^bind/")

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
	p.in = n.bootAll(hostloGuests(t), fleet.Options{Slots: 4, Memory: 768 << 20})
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

// ask returns the answer of the server on a port of a container's loopback. An error contains
// the output of the shell.
func (m *node) ask(container string, port int) (string, error) {
	out, err := m.try(fmt.Sprintf(`ip netns exec %s timeout 10 bash -c 'exec 3<>/dev/tcp/127.0.0.1/%d && printf "GET / HTTP/1.0\r\n\r\n" >&3 && tail -n 1 <&3'`,
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

// wantRefused fails unless a port refuses a connection within 5 s.
func wantRefused(t *testing.T, m *node, container string, port int) {
	t.Helper()
	begin := time.Now()
	who, err := m.ask(container, port)
	if err == nil || !strings.Contains(err.Error(), "refused") {
		t.Errorf("port %d in %s of %s: got %q, %v; want Connection refused", port, container, m.Name, who, err)
	}
	if took := time.Since(begin); took > 5*time.Second {
		t.Errorf("port %d in %s of %s refused after %v, want at most 5 s", port, container, m.Name, took)
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
	o.Patience = time.Duration(len(in)) * time.Second
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

func wantAllPass(t *testing.T, outcomes []localhost.Outcome) {
	t.Helper()
	for _, out := range outcomes {
		if out.Verdict() != localhost.Pass {
			t.Errorf("%s: %s, want %s: %s", out.Case, out.Verdict(), localhost.Pass, check.OneLine(out.Err))
		}
	}
}

func (p *splitPod) oneLocalhost(t *testing.T) {
	wantAllPass(t, p.try(t, p.in, podName, localhost.Options{Skip: bindCases}))
}

// Package loopback explains why two fractions can bind the same address, and why of two clients
// on one port the second gets no connection. Exactly the cases that demand more fail, with
// these errors. If the first client is in the fraction of the server, as with two guests, the
// second client times out instead.
func (p *splitPod) bindConflicts(t *testing.T) {
	for _, out := range p.try(t, p.in, podName, localhost.Options{Only: bindCases}) {
		want := "which another fraction has bound; want EADDRINUSE$"
		switch {
		case out.Alone:
			want = "^$"
		case strings.HasSuffix(out.Case, "/two-clients-of-one-server-cannot-share-a-port"):
			want = "the second client on the same port ended with ECONNREFUSED, want EADDRNOTAVAIL$"
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
	wantAllPass(t, p.try(t, slices.Repeat(p.in[:1], len(p.in)), single, localhost.Options{}))
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
		if _, err := m.hostlo("CHECK", podName, keys); err != nil {
			t.Errorf("CHECK on %s: %v", m.Name, err)
		}
	}
}

// The host daemon is killed while data flows. The next daemon takes the segment over unchanged.
// The pod notices neither.
func (p *splitPod) daemonKilled(t *testing.T) {
	server, client := p.in[0], p.in[1]
	before := p.segment(t)
	server.run("ip netns exec " + podName + " iperf3 --server --one-off --daemon --bind 127.0.0.1 --port 5201")
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
	if err := json.Unmarshal([]byte(stream.out), &measured); stream.err != nil || err != nil || len(measured.Intervals) < 5 {
		t.Fatalf("iperf3: %v, %v: %s", stream.err, err, stream.out)
	}
	for i, second := range measured.Intervals {
		if second.Sum.Bytes == 0 {
			t.Errorf("second %d: no byte was sent", i+1)
		}
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

// broadcastLimit is the number of broadcast frames per second that a fraction may send. An
// emulated guest can send more.
const broadcastLimit = 100

// sendFrames is a Perl script, because every Debian has Perl. It sends a frame, in hex, on the
// interface with an index, a number of times or for a number of seconds, and prints how often
// it has sent the frame.
const sendFrames = `use Errno;
my ($index, $frame, $times, $seconds) = @ARGV;
socket(my $s, 17, 3, 0) or die "socket: $!"; # AF_PACKET, SOCK_RAW
my $to = pack("S n i S C C a8", 17, 0, $index, 0, 0, 6, "");
my ($sent, $end) = (0, time + $seconds);
$frame = pack("H*", $frame);
while ($sent < $times && time < $end) {
	if (defined send($s, $frame, 0, $to)) { $sent++ } elsif (!$!{ENOBUFS}) { die "send: $!" }
}
print $sent;
`

// send sends a frame as root in a guest on the endpoint, which bypasses the eBPF programs of lo,
// and returns how often it was sent.
func (m *node) send(frame []byte, times int, limit time.Duration) (int, error) {
	out, err := m.try(fmt.Sprintf("ip netns exec %s sh -c 'perl - $(cat /sys/class/net/eth0/ifindex) %x %d %d'",
		podName, frame, times, int(limit.Seconds())), sendFrames)
	if err != nil {
		return 0, fmt.Errorf("%w: %s", err, out)
	}
	return strconv.Atoi(out)
}

// datagram is an IPv4 packet with an empty UDP datagram from and to 127.0.0.1:9.
const datagram = "4500001c0000000040117ccf7f0000017f000001" + "0009000900080000"

func ethernet(to, from segment.Address, etherType uint16, payload string) []byte {
	content, err := hex.DecodeString(payload)
	if err != nil {
		panic(err) // a constant
	}
	return slices.Concat(to[:], from[:], []byte{byte(etherType >> 8), byte(etherType)}, content, make([]byte, 46-len(content)))
}

var toAll = segment.Address{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}

// Root in one guest of a pod can send any frame on its endpoint. The host drops frames with the
// address of another fraction and membership frames, and limits broadcasts.
func (p *splitPod) hostileFraction(t *testing.T) {
	rogue, victims := p.in[0], p.in[1:]
	own, theirs := p.fractionOf(t, rogue), p.fractionOf(t, victims[0])
	const ipv4 = 0x0800
	alone := segment.Membership{Generation: p.segment(t).Generation + 1000, Members: segment.Of(theirs)}
	ownMembership := alone.Frame(segment.MAC(theirs))
	copy(ownMembership[6:], slices.Collect(bytesOf(segment.MAC(own))))
	spoofed := func(c status.Frames) uint64 { return c.Spoofed }
	unknown := func(c status.Frames) uint64 { return c.Unknown }
	for _, c := range []struct {
		name  string
		frame []byte
		count func(status.Frames) uint64
	}{
		{"as another fraction", ethernet(toAll, segment.MAC(theirs), ipv4, datagram), spoofed},
		{"as another fraction, to it", ethernet(segment.MAC(theirs), segment.MAC(theirs), ipv4, datagram), spoofed},
		{"membership with a MAC of another fraction", alone.Frame(segment.MAC(theirs)), spoofed},
		{"membership with its own MAC", ownMembership, unknown},
		{"to no fraction", ethernet(segment.Address{0x02, 'h', '5', 0, 0, 0xff}, segment.MAC(own), ipv4, datagram), unknown},
		{"ARP", ethernet(toAll, segment.MAC(own), 0x0806, ""), unknown},
	} {
		const times = 50
		before := c.count(p.segment(t).Counts[own])
		if sent, err := rogue.send(c.frame, times, 10*time.Second); err != nil || sent != times {
			t.Errorf("%s: sent %d, %v", c.name, sent, err)
		}
		p.eventually(c.name+": all frames are counted", func() bool { return c.count(p.segment(t).Counts[own]) == before+times })
	}
	p.wantChecked(t) // no fraction has accepted the membership
	for _, m := range p.in {
		p.wantServed(t, m, p.in)
	}
	t.Run("storm", func(t *testing.T) { p.storm(t, rogue, victims, own) })
}

func bytesOf(a segment.Address) func(func(byte) bool) { return slices.Values(a[:]) }

// storm has one fraction broadcast as fast as it can. Meanwhile the clients of the others must
// still reach all servers, also that of the sending fraction.
func (p *splitPod) storm(t *testing.T, rogue *node, victims []*node, own segment.Fraction) {
	const lasts = 6 * time.Second
	before, begin := p.segment(t).Counts[own], time.Now()
	type end struct {
		sent int
		err  error
	}
	ended := make(chan end, 1)
	go func() {
		sent, err := rogue.send(ethernet(toAll, segment.MAC(own), 0x0800, datagram), 1<<30, lasts)
		ended <- end{sent, err}
	}()
	rounds := 0
	for time.Since(begin) < lasts-time.Second {
		for _, m := range victims {
			p.wantServed(t, m, p.in)
			rounds++
		}
	}
	storm := <-ended
	took := time.Since(begin)
	after := p.segment(t).Counts[own]
	passed, limited := after.Broadcast-before.Broadcast, after.Limited-before.Limited
	t.Logf("%d broadcasts sent in %v: %d passed, %d limited; meanwhile %d rounds of calls to all servers",
		storm.sent, took.Round(time.Millisecond), passed, limited, rounds)
	most := uint64(broadcastLimit * (took.Seconds() + 1))
	if storm.err != nil || passed == 0 || passed > most || limited < 10*most || rounds == 0 {
		t.Errorf("%v: got %d broadcasts passed and %d limited, want 1 to %d passed and ten times as many limited", storm.err, passed, limited, most)
	}
}

// A fraction leaves a running pod. Its ports then refuse connections of the others, and its lo
// is a normal loopback again. Then it joins again.
func (p *splitPod) leaveAndJoin(t *testing.T) {
	rest, m := p.in[:len(p.in)-1], p.in[len(p.in)-1]
	low, high := segment.Ports(p.fractionOf(t, m))
	if got := m.ports(); got != fmt.Sprintf("%d\t%d", low, high) {
		t.Errorf("ephemeral ports of the fraction: %q, want %d to %d", got, low, high)
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
	if got := m.ports(); got != "32768\t60999" {
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

// The commands in docs/hostlo.md work as the page says.
func TestHostloByHand(t *testing.T) {
	unnestBinary(t)
	printed := map[string]string{ // output, by a part of the command
		"wget":         "hello from node1\n",
		"hostd status": "1 node1, 2 node2",
		"check":        " passed, 0 failed, 0 not there\n",
	}
	commands := documented(t, "../../docs/hostlo.md", "## Try it")
	ctx, cancel := beforeDeadline(t, 20*time.Second)
	defer cancel()
	defer func() { mustRun(t, "../../bin/unnest", "vm", "down", "--all") }()
	for _, command := range commands {
		if strings.HasPrefix(command, "make ") {
			continue
		}
		cmd := exec.CommandContext(ctx, "bash", "-c", strings.ReplaceAll(command, "/run/unnest", os.Getenv("UNNEST_STATE")))
		cmd.Dir, cmd.WaitDelay = "../..", time.Second
		begin := time.Now()
		out, err := cmd.CombinedOutput()
		t.Logf("%.1f s: %s\n%s", time.Since(begin).Seconds(), command, out)
		if err != nil {
			t.Fatalf("%s: %v: %s", command, err, out)
		}
		for part, want := range printed {
			if !strings.Contains(command, part) {
				continue
			}
			if delete(printed, part); !strings.Contains(string(out), want) {
				t.Errorf("%s: printed %s, want %q", command, out, want)
			}
		}
	}
	for part := range printed {
		t.Errorf("docs/hostlo.md has no command with %q", part)
	}
}

// documented returns the commands of a section of a document: its indented lines. A command
// continues in the next line if its line ends with a backslash.
func documented(t *testing.T, path, heading string) (commands []string) {
	t.Helper()
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(content), "\n"+heading+"\n")
	section, _, _ = strings.Cut(section, "\n## ")
	continues := false
	for _, line := range strings.Split(section, "\n") {
		text, indented := strings.CutPrefix(line, "    ")
		switch {
		case indented && continues:
			commands[len(commands)-1] += "\n" + text
		case indented:
			commands = append(commands, text)
		}
		continues = indented && strings.HasSuffix(text, "\\")
	}
	if len(commands) == 0 {
		t.Fatalf("%s: no commands below %q", path, heading)
	}
	return commands
}
