package e2e

import (
	"encoding/hex"
	"fmt"
	"slices"
	"strconv"
	"testing"
	"time"

	"unnest.io/unnest/internal/hostapi/segment"
	"unnest.io/unnest/internal/hostd/status"
)

// broadcastLimit is the number of broadcast frames per second that a fraction may send. An
// emulated guest can send more.
const broadcastLimit = 100

// sendFrames is a Perl script, because every Debian has Perl. It sends a frame, in hex, on the
// interface with an index, a number of times or for a number of seconds, and prints how often
// it has sent the frame. A fifth argument is a virtio_net_hdr, in hex.
const sendFrames = `use Errno;
my ($index, $frame, $times, $seconds, $header) = @ARGV;
socket(my $s, 17, 3, 0) or die "socket: $!"; # AF_PACKET, SOCK_RAW
if ($header) {
	setsockopt($s, 263, 15, 1) or die "setsockopt: $!"; # SOL_PACKET, PACKET_VNET_HDR
	$frame = $header . $frame;
}
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
		if sent, err := rogue.send(c.frame, times, time.Minute); err != nil || sent != times {
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
	most := uint64(broadcastLimit * (took.Seconds() + 2)) // with the burst
	least := uint64(broadcastLimit * lasts.Seconds())     // limited while the storm lasts
	if storm.err != nil || passed == 0 || passed > most || limited < least || rounds == 0 {
		t.Errorf("%v: got %d broadcasts passed and %d limited, want 1 to %d passed and at least %d limited", storm.err, passed, limited, most, least)
	}
}
