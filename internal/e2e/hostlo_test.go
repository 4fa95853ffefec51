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
	"unnest/internal/hostd/daemon"
	"unnest/internal/testbed/fleet"
)

// hostloGuests is over how many guests the pod is split: two, or UNNEST_HOSTLO_GUESTS.
func hostloGuests(t *testing.T) int {
	t.Helper()
	text := os.Getenv("UNNEST_HOSTLO_GUESTS")
	if text == "" {
		return 2
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 2 || n > segment.MaxFractions {
		t.Fatalf("UNNEST_HOSTLO_GUESTS is %q: want 2 to %d", text, segment.MaxFractions)
	}
	return n
}

// allCases reports whether the localhost suite's cases are all tried, in guests that
// have the programs of some. In emulated guests that takes minutes.
func allCases() bool { return os.Getenv("UNNEST_LOCALHOST") == "1" }

// someCases are those that are tried otherwise, in guests as they always are.
var someCases = regexp.MustCompile(`^ping/ipv4/every` +
	`|^tcp/ipv4/(server-on-|both-ends-|dead-port-|server-moves-|client-of-a-killed-|many-short-|full-backlog-|held-|outgoing-|bulk-both-|traffic-within-)` +
	`|^tcp/ipv6/(server-on-loopback-|dual-stack-|dead-port-)` +
	`|^udp/ipv4/(server-on-loopback-|dead-port-|server-moves-|one-way-|largest-)` +
	`|^udp/ipv6/(server-on-loopback-|largest-)` +
	`|^address/ipv4/(tcp-server-on-127.0.0.2-|one-port-)` +
	`|^bind/` +
	`|^programs/ipv4/(grpc-|sidecar-)`)

// bindCases are about binds that conflict, which package loopback does not find.
var bindCases = regexp.MustCompile("^bind/")

// podName names the pod, its segment, and the network namespace that is its fraction
// in each guest.
const podName = "pod"

var podSegment = map[string]any{"segment": podName, "key": "known-to-the-guests-of-the-pod"}

// splitPod is a pod with a fraction in each of several guests.
type splitPod struct {
	*nodes
	in      []*node
	joined  map[*node]*types100.Result
	devices map[*node]string // of the guest, before
}

// One pod over several guests has one localhost, whatever happens to the host daemon,
// to the other fractions and because of them.
func TestHostlo(t *testing.T) {
	n := newNodes(t, nil)
	if allCases() {
		n.image = programsImage(t, n.programs)
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

// fraction makes a network namespace one of a pod's.
func (m *node) fraction(container string, keys map[string]any) *types100.Result {
	m.nodes.t.Helper()
	m.run("ip netns add " + container)
	r, err := m.hostlo("ADD", container, keys)
	if err != nil {
		m.nodes.t.Fatalf("ADD %s on %s: %v", container, m.Name, err)
	}
	return r
}

// port is where the fraction of a guest serves: each has another, below all that the
// suite takes.
func (m *node) port() int { return 8000 + m.Index }

// serve has a container say the guest's name on its loopback.
func (m *node) serve(container string) {
	m.nodes.t.Helper()
	m.run(fmt.Sprintf("mkdir -p /tmp/web && echo %s >/tmp/web/index.html && ip netns exec %s busybox httpd -p 127.0.0.1:%d -h /tmp/web",
		m.Name, container, m.port()))
}

// ask asks who serves on a port of a container's loopback. What fails ends with what
// the shell says.
func (m *node) ask(container string, port int) (string, error) {
	out, err := m.try(fmt.Sprintf(`ip netns exec %s timeout 10 bash -c 'exec 3<>/dev/tcp/127.0.0.1/%d && printf "GET / HTTP/1.0\r\n\r\n" >&3 && tail -n 1 <&3'`,
		container, port), "")
	if err != nil {
		return "", fmt.Errorf("%w: %s", err, out)
	}
	return strings.TrimSpace(out), nil
}

// wantServed fails unless the pod's fraction in m reaches those in all of the guests.
func (p *splitPod) wantServed(t *testing.T, m *node, by []*node) {
	t.Helper()
	for _, server := range by {
		if who, err := m.ask(podName, server.port()); err != nil || who != server.Name {
			t.Errorf("%s asks the server of %s: got %q, %v", m.Name, server.Name, who, err)
		}
	}
}

// wantRefused fails unless nobody listens on a port, which is told soon.
func wantRefused(t *testing.T, m *node, container string, port int) {
	t.Helper()
	begin := time.Now()
	who, err := m.ask(container, port)
	if err == nil || !strings.Contains(err.Error(), "refused") {
		t.Errorf("port %d in %s of %s: got %q, %v; want a refusal", port, container, m.Name, who, err)
	}
	if took := time.Since(begin); took > 5*time.Second {
		t.Errorf("port %d in %s of %s was refused after %v", port, container, m.Name, took)
	}
}

// try runs the localhost suite on agents in a network namespace of the guests. What
// happens at once may take a second for each: they are emulated, on few processors.
func (p *splitPod) try(t *testing.T, in []*node, container string, o localhost.Options) (outcomes []localhost.Outcome) {
	t.Helper()
	for _, m := range in {
		o.Fractions = append(o.Fractions, localhost.Fraction{
			Place: m.ssh, Args: []string{"env", foreignPath, "ip", "netns", "exec", container, "/usr/local/bin/unnest-localhost", "agent"},
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
		t.Errorf("%d cases of %d were tried", len(outcomes), len(selected))
	}
	t.Logf("%d cases, %d agents, %v", len(outcomes), len(in), time.Since(begin).Round(time.Second))
	return outcomes
}

// beforeDeadline ends early enough for what comes after, if the test has a deadline.
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

// Package loopback says why two fractions can bind the same, and that of two clients
// on one port the second gets no connection. What asks for more fails, in these words,
// and nothing else does. Where the first client is in the server's own fraction, as
// with two guests, the second is not refused, but not answered.
func (p *splitPod) bindConflicts(t *testing.T) {
	for _, out := range p.try(t, p.in, podName, localhost.Options{Only: bindCases}) {
		want := "which another fraction has bound; want EADDRINUSE$"
		switch {
		case out.Alone:
			want = "^$"
		case strings.HasSuffix(out.Case, "/two-clients-of-one-server-cannot-share-a-port"):
			want = "the second client on one port ended with ECONNREFUSED, want EADDRNOTAVAIL$"
		}
		if got := check.OneLine(out.Err); !regexp.MustCompile(want).MatchString(got) {
			t.Errorf("%s: got %q, want %q", out.Case, got, want)
		}
	}
}

// The suite asks of a pod over guests what holds in a single namespace of one.
func (p *splitPod) oneNamespace(t *testing.T) {
	const single = "single"
	m := p.in[0]
	m.run("ip netns add " + single + " && ip -n " + single + " link set lo up")
	wantAllPass(t, p.try(t, slices.Repeat(p.in[:1], len(p.in)), single, localhost.Options{}))
	m.run("ip netns del " + single)
}

// Who has not the pod's key cannot join it, and another pod of the same guests has
// another localhost.
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
		t.Errorf("refused joins have left %s", links)
	}
	if now := first.run("ls /sys/class/net"); now != p.devices[first] {
		t.Errorf("%s has the interfaces %q, had %q", first.Name, now, p.devices[first])
	}
	p.eventually("all slots are free again", func() bool { return p.guestStatus(first.Name).SlotsFree == slots })
	if got := len(p.status().Segments); got != 2 {
		t.Errorf("there are %d segments, want 2", got)
	}
	first.run("ip netns del stranger")
	last.end(t, "other", other)
}

// end takes a container out of its segment.
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

// segment is what the host daemon says of the pod's.
func (p *splitPod) segment(t *testing.T) daemon.SegmentStatus {
	t.Helper()
	for _, s := range p.status().Segments {
		if s.Pod == podName {
			return s
		}
	}
	t.Fatal("the host daemon knows of no segment of the pod")
	return daemon.SegmentStatus{}
}

// fractionOf is the number that a guest's fraction has.
func (p *splitPod) fractionOf(t *testing.T, m *node) segment.Fraction {
	t.Helper()
	for _, f := range p.segment(t).Fractions {
		if f.Guest == m.Name && f.Member {
			return f.Fraction
		}
	}
	t.Fatalf("%s is no member of the segment", m.Name)
	return 0
}

// wantChecked fails unless CHECK finds every fraction as its ADD has left it, with the
// members that the host knows.
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

// The host daemon is killed while data flows; the pod notices neither that nor the
// next daemon, which takes the segment over as it was.
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
		t.Fatalf("the stream ended with %v, %v: %s", stream.err, err, stream.out)
	}
	for i, second := range measured.Intervals {
		if second.Sum.Bytes == 0 {
			t.Errorf("nothing was sent in second %d", i+1)
		}
	}
	for _, m := range p.in {
		p.guestStatus(m.Name) // taken over
		p.wantServed(t, m, p.in)
	}
	after := p.segment(t)
	if !slices.Equal(after.Fractions, before.Fractions) || segment.Older(after.Generation, before.Generation) {
		t.Errorf("the segment was %+v, is %+v", before, after)
	}
	p.wantChecked(t)
}

// broadcastLimit is how many frames a second each fraction may send to all: what an
// emulated guest can send is beyond it for sure.
const broadcastLimit = 100

// sendFrames is a program for Perl, which every Debian has: it sends a frame, in hex,
// by the interface of a number until it has done so often enough, or for so many
// seconds, and says how often.
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

// send has root in a guest send a frame by the endpoint, past the programs at lo, and
// returns how often it has.
func (m *node) send(frame []byte, times int, limit time.Duration) (int, error) {
	out, err := m.try(fmt.Sprintf("ip netns exec %s sh -c 'perl - $(cat /sys/class/net/eth0/ifindex) %x %d %d'",
		podName, frame, times, int(limit.Seconds())), sendFrames)
	if err != nil {
		return 0, fmt.Errorf("%w: %s", err, out)
	}
	return strconv.Atoi(out)
}

// datagram is an IPv4 packet of no data to UDP port 9 of 127.0.0.1, from there.
const datagram = "4500001c0000000040117ccf7f0000017f000001" + "0009000900080000"

func ethernet(to, from segment.Address, etherType uint16, payload string) []byte {
	content, err := hex.DecodeString(payload)
	if err != nil {
		panic(err) // a constant
	}
	return slices.Concat(to[:], from[:], []byte{byte(etherType >> 8), byte(etherType)}, content, make([]byte, 46-len(content)))
}

var toAll = segment.Address{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}

// Root in one guest of a pod can send what it likes by its endpoint. It speaks for
// itself only, and not too often to all.
func (p *splitPod) hostileFraction(t *testing.T) {
	rogue, victims := p.in[0], p.in[1:]
	own, theirs := p.fractionOf(t, rogue), p.fractionOf(t, victims[0])
	const ipv4 = 0x0800
	alone := segment.Membership{Generation: p.segment(t).Generation + 1000, Members: segment.Of(theirs)}
	ownNews := alone.Frame(segment.MAC(theirs))
	copy(ownNews[6:], slices.Collect(bytesOf(segment.MAC(own))))
	spoofed := func(c daemon.FrameCounts) uint64 { return c.Spoofed }
	unknown := func(c daemon.FrameCounts) uint64 { return c.Unknown }
	for _, c := range []struct {
		name  string
		frame []byte
		count func(daemon.FrameCounts) uint64
	}{
		{"as another fraction", ethernet(toAll, segment.MAC(theirs), ipv4, datagram), spoofed},
		{"as another fraction, to it", ethernet(segment.MAC(theirs), segment.MAC(theirs), ipv4, datagram), spoofed},
		{"news as if from the host", alone.Frame(segment.MAC(theirs)), spoofed},
		{"news of its own", ownNews, unknown},
		{"to no fraction", ethernet(segment.Address{0x02, 'h', '5', 0, 0, 0xff}, segment.MAC(own), ipv4, datagram), unknown},
		{"ARP", ethernet(toAll, segment.MAC(own), 0x0806, ""), unknown},
	} {
		const times = 50
		before := c.count(p.segment(t).Counts[own])
		if sent, err := rogue.send(c.frame, times, 10*time.Second); err != nil || sent != times {
			t.Errorf("%s: sent %d, %v", c.name, sent, err)
		}
		p.eventually(c.name+": all were counted", func() bool { return c.count(p.segment(t).Counts[own]) == before+times })
	}
	p.wantChecked(t) // nobody has believed the news
	for _, m := range p.in {
		p.wantServed(t, m, p.in)
	}
	t.Run("storm", func(t *testing.T) { p.storm(t, rogue, victims, own) })
}

func bytesOf(a segment.Address) func(func(byte) bool) { return slices.Values(a[:]) }

// storm has one fraction send to all as fast as it can, while the others' clients go
// on, with servers of their own and with the one in the midst of it.
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
	asked := 0
	for time.Since(begin) < lasts-time.Second {
		for _, m := range victims {
			p.wantServed(t, m, p.in)
			asked++
		}
	}
	storm := <-ended
	took := time.Since(begin)
	after := p.segment(t).Counts[own]
	passed, limited := after.Broadcast-before.Broadcast, after.Limited-before.Limited
	t.Logf("%d frames to all were sent in %v, %d passed, %d did not; meanwhile %d times all servers were asked",
		storm.sent, took.Round(time.Millisecond), passed, limited, asked)
	most := uint64(broadcastLimit * (took.Seconds() + 1))
	if storm.err != nil || passed == 0 || passed > most || limited < 10*most || asked == 0 {
		t.Errorf("%v: want 1 to %d passed, and far more limited", storm.err, most)
	}
}

// A fraction leaves a pod that runs: the others are told at once that its servers are
// gone, and its lo is its own again. It comes back, and all is as before.
func (p *splitPod) leaveAndJoin(t *testing.T) {
	rest, m := p.in[:len(p.in)-1], p.in[len(p.in)-1]
	low, high := segment.Ports(p.fractionOf(t, m))
	if got := m.ports(); got != fmt.Sprintf("%d\t%d", low, high) {
		t.Errorf("the fraction has the ports %q, want %d to %d", got, low, high)
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
		t.Errorf("the pod has the ports %q after it has left, want the kernel's own", got)
	}
	if left := m.run("tc -n " + podName + " filter show dev lo egress"); left != "" {
		t.Errorf("lo still has %s", left)
	}
	r, err := m.hostlo("ADD", podName, podSegment)
	p.check(err)
	p.joined[m] = r
	p.wantChecked(t)
	for _, m := range p.in {
		p.wantServed(t, m, p.in)
	}
}

// ports are those that the pod's clients have.
func (m *node) ports() string {
	m.nodes.t.Helper()
	return strings.TrimSpace(m.run("ip netns exec " + podName + " cat /proc/sys/net/ipv4/ip_local_port_range"))
}

// nothingLeft ends the pod: its guests and the host are as they were.
func (p *splitPod) nothingLeft(t *testing.T) {
	for _, m := range p.in {
		m.end(t, podName, podSegment)
		if now := m.run("ls /sys/class/net"); now != p.devices[m] {
			t.Errorf("%s has the interfaces %q, had %q", m.Name, now, p.devices[m])
		}
		if got := p.guestStatus(m.Name).Attachments; got != 0 {
			t.Errorf("%s has %d attachments", m.Name, got)
		}
	}
	if left := p.status().Segments; len(left) > 0 {
		t.Errorf("there are segments: %+v", left)
	}
	if links := mustRun(t, "nsenter", "--net="+p.fleet.Lab.HostNS(), "ip", "-o", "link"); strings.Contains(links, "segment:") || strings.Contains(links, "hlo") {
		t.Errorf("the host has %s", links)
	}
}

// What docs/hostlo.md says to type does what it says.
func TestHostloByHand(t *testing.T) {
	program(t)
	said := map[string]string{ // by a part of the command
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
		for part, want := range said {
			if !strings.Contains(command, part) {
				continue
			}
			if delete(said, part); !strings.Contains(string(out), want) {
				t.Errorf("%s: got %s, want %q", command, out, want)
			}
		}
	}
	if len(said) > 0 {
		t.Errorf("no command was there that says %q", slices.Collect(maps.Values(said)))
	}
}

// documented returns the commands of a section of a document: its indented lines, of
// which one that ends with a backslash goes on in the next.
func documented(t *testing.T, path, heading string) (commands []string) {
	t.Helper()
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(content), "\n"+heading+"\n")
	section, _, _ = strings.Cut(section, "\n## ")
	goesOn := false
	for _, line := range strings.Split(section, "\n") {
		text, indented := strings.CutPrefix(line, "    ")
		switch {
		case indented && goesOn:
			commands[len(commands)-1] += "\n" + text
		case indented:
			commands = append(commands, text)
		}
		goesOn = indented && strings.HasSuffix(text, "\\")
	}
	if len(commands) == 0 {
		t.Fatalf("%s has no commands below %q", path, heading)
	}
	return commands
}
