package daemon

import (
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"unnest/internal/hostapi/hostdpb"
	"unnest/internal/hostapi/segment"
	"unnest/internal/hostd/hotplug"
	"unnest/internal/hostd/policy"
	"unnest/internal/netdev/reflector"
)

// fakeLoopback is a segment's TAP without a kernel.
type fakeLoopback struct {
	options   reflector.Options
	queues    segment.Set
	alias     string
	names     map[string]bool
	announced []segment.Membership
	deleted   bool
	fail      error // of the next Join
}

func (l *fakeLoopback) Join(f segment.Fraction) (*os.File, error) {
	if err := l.fail; err != nil {
		l.fail = nil
		return nil, err
	}
	l.queues = l.queues.With(f)
	return os.Open(os.DevNull)
}

func (l *fakeLoopback) Leave(f segment.Fraction) error {
	l.queues = l.queues.Without(f)
	return nil
}

func (l *fakeLoopback) RestoreOffloads() error { return nil }

func (l *fakeLoopback) Announce(m segment.Membership) error {
	l.announced = append(l.announced, m)
	return nil
}

func (l *fakeLoopback) Members() segment.Set { return l.queues }

func (l *fakeLoopback) Counters() (map[segment.Fraction]reflector.Counters, error) {
	return map[segment.Fraction]reflector.Counters{1: {Frames: 3, Spoofed: 2}}, nil
}

func (l *fakeLoopback) Close() error { return nil }

func (l *fakeLoopback) Delete() error {
	l.deleted = true
	return nil
}

func (l *fakeLoopback) setAlias(alias string) error {
	l.alias = alias
	return nil
}

func (l *fakeLoopback) addName(name string) error {
	if len(name) > maxName || l.names[name] {
		return fmt.Errorf("name %q of %d bytes", name, len(name))
	}
	l.names[name] = true
	return nil
}

func (l *fakeLoopback) deleteName(name string) error {
	delete(l.names, name)
	return nil
}

func (l *fakeLoopback) gone() bool { return l.deleted }

// fakeSegments are segments on fake loopbacks, by their pods.
func fakeSegments(t *testing.T) (*segments, map[string]*fakeLoopback) {
	made := map[string]*fakeLoopback{}
	s := newSegments(slog.New(slog.NewTextHandler(t.Output(), nil)), nil)
	s.create = func(o reflector.Options) (loopback, error) {
		if l := made[o.Name]; l != nil && !l.deleted {
			return nil, errors.New("device is there")
		}
		l := &fakeLoopback{options: o, names: map[string]bool{}}
		made[o.Name] = l
		return l, nil
	}
	return s, made
}

const testKey = "0123456789abcdef"

func asked(pod string) wanted { return wanted{pod: pod, key: testKey} }

// A pod's fractions come and go, as one guest after the other asks.
func TestSeats(t *testing.T) {
	s, made := fakeSegments(t)
	tenant := policy.Tenant{Name: "a", Limits: policy.Limits{Broadcasts: 70}}
	loop := func() *fakeLoopback { return made[segmentTAP("a/web")] }
	join := func(guest, port string) note {
		t.Helper()
		o := guest + "/c1"
		n, err := s.reserve(tenant, asked("web"), guest, o, 0)
		if err != nil {
			t.Fatal(err)
		}
		f, err := s.open(o, port)
		if err != nil {
			t.Fatal(err)
		}
		f.Close()
		if loop().queues.Has(n.fraction) != true || s.all["a/web"].members.Has(n.fraction) {
			t.Errorf("queues are %s, members %s", loop().queues, s.all["a/web"].members)
		}
		if err := s.connect(port, endpointKey(hotplug.Key{ContainerID: "c1", Interface: "eth0"})); err != nil {
			t.Fatal(err)
		}
		return n
	}
	if n := join("g1", "u1n1-1"); n.fraction != 1 || n.ownMAC || n.pod != "web" {
		t.Errorf("first note is %+v", n)
	}
	told := len(loop().announced)
	if err := s.check("g1/c1"); err != nil || len(loop().announced) != told+1 || loop().announced[told] != loop().announced[told-1] {
		t.Errorf("an endpoint that asks is told %v, %v after %d; want the last of them again", loop().announced, err, told)
	}
	if n := join("g2", "u2n1-1"); n.fraction != 2 {
		t.Errorf("second note is %+v", n)
	}
	if o := loop().options; o.Limit.Rate != 70 || o.Limit.Burst != 7 || o.Mode != reflector.Unicast {
		t.Errorf("options are %+v", o)
	}
	last := loop().announced[len(loop().announced)-1]
	if last.Members != segment.Of(1, 2) || last.Generation != 2 {
		t.Errorf("announced %+v", loop().announced)
	}
	if names := slices.Sorted(maps.Keys(loop().names)); !slices.Equal(names, []string{"u1n1-1.1.c1@eth0", "u2n1-1.2.c1@eth0"}) {
		t.Errorf("names are %q", names)
	}
	if got, ok := parseTitle(loop().alias); !ok || got.generation != 2 || got.pod != "web" || strings.Contains(loop().alias, testKey) {
		t.Errorf("alias is %q", loop().alias)
	}

	// On its way out it is no member, and has no key, but its number is taken.
	if endpoint, err := s.disconnect("u1n1-1"); !endpoint || err != nil {
		t.Errorf("got %t, %v", endpoint, err)
	}
	if last = loop().announced[len(loop().announced)-1]; last.Members != segment.Of(2) || !loop().names["u1n1-1.1"] || loop().names["u1n1-1.1.c1@eth0"] {
		t.Errorf("announced %+v, names %v", last, loop().names)
	}
	if n := join("g3", "u3n1-1"); n.fraction != 3 {
		t.Errorf("third note is %+v", n)
	}
	if _, err := s.reserve(tenant, asked("web"), "g1", "g1/c2", 0); !errors.Is(err, errTwice) {
		t.Errorf("second endpoint of a guest: got %v", err)
	}
	first := loop()
	for _, port := range []string{"u1n1-1", "u2n1-1", "u3n1-1"} {
		if first.deleted {
			t.Error("the segment is gone before the last")
		}
		if endpoint, err := s.close(port); !endpoint || err != nil {
			t.Errorf("close %s: %t, %v", port, endpoint, err)
		}
	}
	if !first.deleted || len(s.all)+len(s.seats)+len(s.ports) > 0 || len(first.names) > 0 {
		t.Errorf("left: %v, %v, %v, names %v, TAP deleted %t", s.all, s.seats, s.ports, first.names, first.deleted)
	}
	if endpoint, err := s.close("u1n1-1"); endpoint || err != nil {
		t.Errorf("second close: %t, %v", endpoint, err)
	}
}

// Who may join.
func TestAdmission(t *testing.T) {
	tenant := policy.Tenant{Name: "a", Limits: policy.Limits{Segments: 2}}
	few := policy.Tenant{Name: "b", Limits: policy.Limits{Endpoints: 1}, Segments: policy.Segments{Modes: []string{policy.SegmentUnicast}}}
	s, _ := fakeSegments(t)
	for i, c := range []struct {
		tenant policy.Tenant
		want   wanted
		guest  string
		code   codes.Code
	}{
		{tenant, wanted{pod: "web", key: testKey, mode: "plain", network: "n"}, "g1", codes.OK},
		{tenant, wanted{pod: "web", key: testKey, network: "n"}, "g2", codes.OK},
		{tenant, wanted{pod: "web", key: testKey, mode: "unicast", network: "n"}, "g3", codes.FailedPrecondition},
		{tenant, wanted{pod: "web", key: testKey}, "g3", codes.FailedPrecondition},
		{tenant, wanted{pod: "web", key: testKey + "0", network: "n"}, "g3", codes.PermissionDenied},
		{tenant, wanted{pod: "web", key: testKey[1:], mode: "unicast"}, "g3", codes.PermissionDenied}, // no word of the mode
		{tenant, wanted{pod: "db", key: testKey}, "g1", codes.OK},
		{tenant, wanted{pod: "third", key: testKey}, "g1", codes.ResourceExhausted},
		{few, wanted{pod: "web", key: "another of b's..", mode: "plain"}, "g9", codes.PermissionDenied},
		{few, wanted{pod: "web", key: "another of b's.."}, "g9", codes.OK}, // the same name, another tenant
		{few, wanted{pod: "web", key: "another of b's.."}, "g8", codes.ResourceExhausted},
	} {
		_, err := s.reserve(c.tenant, c.want, c.guest, fmt.Sprintf("%s/c%d", c.guest, i), 0)
		if err != nil {
			err = coded(err)
		}
		if status.Code(err) != c.code {
			t.Errorf("%d: %s, %+v: got %v, want %v", i, c.tenant.Name, c.want, err, c.code)
		}
	}
	if n := s.count("a") + s.count("b"); n != 3 {
		t.Errorf("%d segments, want 3", n)
	}
	if _, err := s.reserve(tenant, asked("db"), "g1", "g1/c0", 0); !errors.Is(err, errElsewhere) {
		t.Errorf("an attachment that is in another segment: got %v", err)
	}
	for _, c := range []struct {
		pod, key, guest string
		want            error
	}{
		{"web", "", "g1", nil}, {"web", testKey, "g7", nil}, {"web", "", "g7", errKey}, {"web", "x", "g1", errKey}, {"none", "", "g1", errNoSegment},
	} {
		if _, err := s.find("a", c.pod, c.key, c.guest); !errors.Is(err, c.want) || (err == nil) != (c.want == nil) {
			t.Errorf("find %s as %s with key %q: got %v, want %v", c.pod, c.guest, c.key, err, c.want)
		}
	}
}

// A guest's NICs have all different MACs, whatever segments they are of; the
// seventeenth fraction is refused.
func TestFractions(t *testing.T) {
	s, _ := fakeSegments(t)
	tenant := policy.Tenant{Name: "a"}
	seen := map[segment.Fraction]bool{}
	for i := range 20 {
		n, err := s.reserve(tenant, asked(fmt.Sprint("pod", i)), "g1", fmt.Sprint("g1/c", i), segment.Of(3))
		if err != nil {
			t.Fatal(err)
		}
		if n.ownMAC != (i >= 15) || !n.ownMAC && (n.fraction == 3 || seen[n.fraction]) {
			t.Errorf("endpoint %d is fraction %d, own MAC %t", i, n.fraction, n.ownMAC)
		}
		seen[n.fraction] = true
	}
	for i := range 16 {
		n, err := s.reserve(tenant, asked("wide"), fmt.Sprint("h", i), fmt.Sprint("h", i, "/c"), 0)
		if err != nil || n.fraction != segment.Fraction(i+1) {
			t.Errorf("endpoint %d is fraction %d, %v", i, n.fraction, err)
		}
	}
	_, err := s.reserve(tenant, asked("wide"), "h16", "h16/c", 0)
	if !errors.Is(err, policy.ErrLimit) || status.Code(coded(err)) != codes.ResourceExhausted {
		t.Errorf("the seventeenth: got %v", err)
	}
}

// What fails, or is given up before it has a queue, leaves nothing.
func TestSeatsThatFail(t *testing.T) {
	s, made := fakeSegments(t)
	tenant := policy.Tenant{Name: "a"}
	if _, err := s.reserve(tenant, asked("web"), "g1", "g1/c1", 0); err != nil {
		t.Fatal(err)
	}
	loop := made[segmentTAP("a/web")]
	loop.fail = errors.New("no luck")
	if _, err := s.open("g1/c1", "u1n1-1"); err == nil || len(s.ports) > 0 {
		t.Errorf("got %v, ports %v", err, s.ports)
	}
	if err := s.release("g1/c1"); err != nil || !loop.deleted || len(s.all) > 0 {
		t.Errorf("got %v, TAP deleted %t, segments %v", err, loop.deleted, s.all)
	}
	if _, err := s.open("g1/c1", "u1n1-2"); !errors.Is(err, hotplug.ErrDetached) {
		t.Errorf("given up: got %v", err)
	}

	// A guest that is gone, with one endpoint ready and one half done.
	for i, pod := range []string{"web", "db"} {
		o := fmt.Sprint("g1/c", i)
		if _, err := s.reserve(tenant, asked(pod), "g1", o, 0); err != nil {
			t.Fatal(err)
		}
		if _, err := s.open(o, fmt.Sprint("u1n", i, "-1")); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := s.reserve(tenant, asked("web"), "g2", "g2/c", 0); err != nil {
		t.Fatal(err)
	}
	if err := s.drop("g1"); err != nil || len(s.all) != 1 || len(s.seats) != 1 || len(s.ports) != 0 || s.has("g1") || !s.has("g2") {
		t.Errorf("got %v, segments %v, seats %v, ports %v", err, s.all, s.seats, s.ports)
	}

	// A TAP that somebody deletes: its guests hear of it, and the pod may begin anew.
	made[segmentTAP("a/web")].deleted = true
	if hurt := s.tick(); !slices.Equal(hurt, []string{"g2"}) || len(s.all) != 0 {
		t.Errorf("hurt are %q, segments %v", hurt, s.all)
	}
	if _, err := s.reserve(tenant, asked("web"), "g2", "g2/c", 0); !errors.Is(err, hotplug.ErrDetaching) {
		t.Errorf("before its NIC is gone: got %v", err)
	}
	if err := s.release("g2/c"); err != nil {
		t.Error(err)
	}
	if _, err := s.reserve(tenant, asked("web"), "g2", "g2/c", 0); err != nil {
		t.Error(err)
	}
}

// A segment that was created and is empty is given up after its time; one that
// had an endpoint ends with the last.
func TestCreatedSegment(t *testing.T) {
	s, made := fakeSegments(t)
	tenant := policy.Tenant{Name: "a"}
	for range 2 {
		if got, err := s.make(tenant, asked("web")); err != nil || got.Mode != policy.SegmentUnicast || len(got.Fractions) > 0 {
			t.Errorf("got %+v, %v", got, err)
		}
	}
	loop := made[segmentTAP("a/web")]
	if s.tick(); loop.deleted {
		t.Error("it is given up at once")
	}
	s.all["a/web"].created = time.Now().Add(-emptyTime)
	if s.tick(); !loop.deleted || len(s.all) > 0 {
		t.Error("it is not given up")
	}
	if _, err := s.make(tenant, asked("web")); err != nil {
		t.Fatal(err)
	}
	if _, err := s.make(tenant, wanted{pod: "web", key: "not that of the segment"}); !errors.Is(err, errKey) {
		t.Errorf("another key: got %v", err)
	}
}

// Random lives: at any time the queues are the seats', the announced set is that of
// the connected, and in the end nothing is left.
func TestSegmentsAtRandom(t *testing.T) {
	for seed := range uint64(200) {
		rng := rand.New(rand.NewPCG(seed, 2))
		s, made := fakeSegments(t)
		s.log = slog.New(slog.DiscardHandler)
		tenant := policy.Tenant{Name: "a", Limits: policy.Limits{Segments: 3, Endpoints: 4}}
		state := map[string]int{} // by owner: 1 reserved, 2 open, 3 connected, 4 disconnected
		for step := range 200 {
			guest := rng.IntN(6)
			o, port := fmt.Sprintf("g%d/c", guest), fmt.Sprintf("u%dn1-%d", guest+1, step+1)
			if st := s.seats[o]; st != nil && st.port != "" {
				port = st.port
			}
			key := endpointKey(hotplug.Key{ContainerID: "c", Interface: "eth0"})
			switch rng.IntN(6) {
			case 0, 1:
				if state[o] == 0 {
					if _, err := s.reserve(tenant, asked(fmt.Sprint("p", rng.IntN(4))), fmt.Sprint("g", guest), o, 0); err == nil {
						state[o] = 1
					}
				}
			case 2:
				if f, err := s.open(o, port); (err == nil) != (state[o] == 1) {
					t.Fatalf("seed %d: open in state %d: %v", seed, state[o], err)
				} else if err == nil {
					f.Close()
					state[o] = 2
				}
			case 3:
				if state[o] == 2 || state[o] == 3 {
					if err := s.connect(port, key); err != nil {
						t.Fatal(err)
					}
					state[o] = 3
				}
			case 4:
				if state[o] == 3 {
					if _, err := s.disconnect(port); err != nil {
						t.Fatal(err)
					}
					state[o] = 4
				}
			case 5:
				_, err := s.close(port)
				if err := errors.Join(err, s.release(o)); err != nil {
					t.Fatal(err)
				}
				state[o] = 0
			}
			checkSegments(t, seed, s, state)
		}
		for o := range state {
			if err := s.drop(strings.TrimSuffix(o, "/c")); err != nil {
				t.Fatal(err)
			}
		}
		for _, l := range made {
			if !l.deleted || len(l.names) > 0 || l.queues != 0 {
				t.Fatalf("seed %d: left %+v", seed, l)
			}
		}
	}
}

func checkSegments(t *testing.T, seed uint64, s *segments, state map[string]int) {
	t.Helper()
	seats := 0
	for _, p := range s.all {
		l := p.loop.(*fakeLoopback)
		var queues, members segment.Set
		for f, st := range p.seats {
			seats++
			if state[st.owner] >= 2 {
				queues = queues.With(f)
			}
			if state[st.owner] == 3 {
				members = members.With(f)
			}
		}
		if l.deleted || len(p.seats) == 0 || l.queues != queues || p.members != members || len(l.names) != queues.Len() {
			t.Fatalf("seed %d: segment %s has queues %s, members %s, names %v; want %s and %s", seed, p.pod, l.queues, p.members, l.names, queues, members)
		}
		if n := len(l.announced); n > 0 && l.announced[n-1] != p.membership() || int(p.generation) != n {
			t.Fatalf("seed %d: announced %v, is %+v", seed, l.announced, p.membership())
		}
	}
	for _, st := range state {
		if st > 0 {
			seats--
		}
	}
	if seats != 0 {
		t.Fatalf("seed %d: %d seats too many", seed, seats)
	}
}

// What a guest may send.
func TestWantedSegment(t *testing.T) {
	good := func() *hostdpb.SegmentSpec {
		return &hostdpb.SegmentSpec{Pod: "web", Key: testKey, Network: "pods", Mode: hostdpb.SegmentMode_SEGMENT_MODE_PLAIN}
	}
	if w, err := wantedSegment(good()); err != nil || w != (wanted{pod: "web", key: testKey, mode: "plain", network: "pods"}) {
		t.Errorf("got %+v, %v", w, err)
	}
	for want, spoil := range map[string]func(*hostdpb.SegmentSpec){
		"pod \"\"":               func(s *hostdpb.SegmentSpec) { s.Pod = "" },
		"pod \"a/b\"":            func(s *hostdpb.SegmentSpec) { s.Pod = "a/b" },
		"pod \"a;b\"":            func(s *hostdpb.SegmentSpec) { s.Pod = "a;b" },
		"pod \"x":                func(s *hostdpb.SegmentSpec) { s.Pod = strings.Repeat("x", 64) },
		"key of 15 bytes":        func(s *hostdpb.SegmentSpec) { s.Key = testKey[1:] },
		"key of 129 bytes":       func(s *hostdpb.SegmentSpec) { s.Key = strings.Repeat("x", 129) },
		"key of 17 bytes":        func(s *hostdpb.SegmentSpec) { s.Key += "\n" },
		"network":                func(s *hostdpb.SegmentSpec) { s.Network = "a b" },
		"segment mode 9":         func(s *hostdpb.SegmentSpec) { s.Mode = 9 },
		"device of one physical": func(s *hostdpb.SegmentSpec) { s.Span = hostdpb.SegmentSpan_SEGMENT_SPAN_HOSTS },
	} {
		s := good()
		spoil(s)
		_, err := wantedSegment(s)
		if err == nil || status.Code(coded(err)) != codes.InvalidArgument || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want InvalidArgument with %q", err, want)
		}
	}
	if _, err := wantedSegment(nil); status.Code(err) != codes.InvalidArgument {
		t.Errorf("no segment: got %v", err)
	}
}
