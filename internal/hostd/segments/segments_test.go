package segments

import (
	"bytes"
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

	"unnest.io/unnest/internal/hostapi/segment"
	"unnest.io/unnest/internal/hostd/attachment"
	"unnest.io/unnest/internal/hostd/hotplug"
	"unnest.io/unnest/internal/hostd/quota"
	"unnest.io/unnest/internal/hostd/seedtest"
	"unnest.io/unnest/internal/netdev/reflector"
)

// fakeLoopback simulates a segment's TAP.
type fakeLoopback struct {
	options   reflector.Options
	queues    segment.Set
	alias     string
	names     map[string]bool
	announced []segment.Membership
	deleted   bool
	silent    segment.Set
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

func (l *fakeLoopback) Silent(time.Duration) (segment.Set, error) { return l.silent, nil }

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

// fakeSegments returns a registry on fake loopbacks, and the loopbacks by TAP name.
func fakeSegments(t *testing.T) (*Registry, map[string]*fakeLoopback) {
	made := map[string]*fakeLoopback{}
	s := New(slog.New(slog.NewTextHandler(t.Output(), nil)))
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

func asked(pod string) Spec { return Spec{Pod: pod, Key: testKey} }

// of returns the key of an endpoint of a container.
func of(container string) attachment.Key {
	return attachment.Key{Kind: attachment.Endpoint, Owner: container, Name: "eth0"}
}

// Fractions of a pod join and leave.
func TestEndpoints(t *testing.T) {
	s, made := fakeSegments(t)
	tenant := quota.Tenant{Name: "a", Limits: quota.Limits{Broadcasts: 70}}
	loop := func() *fakeLoopback { return made[TAP("a", "web")] }
	join := func(guest, port string) attachment.Record {
		t.Helper()
		n, err := s.Reserve(tenant, asked("web"), guest, of("c1"), 0)
		if err != nil {
			t.Fatal(err)
		}
		f, err := s.Open(guest, of("c1"), port)
		if err != nil {
			t.Fatal(err)
		}
		f.Close()
		if loop().queues.Has(n.Fraction) != true || s.segments["a/web"].members.Has(n.Fraction) {
			t.Errorf("queues are %s, members %s", loop().queues, s.segments["a/web"].members)
		}
		if err := s.Connect(port, of("c1")); err != nil {
			t.Fatal(err)
		}
		if all := loop().announced; len(all) > 0 && all[len(all)-1].Members.Has(n.Fraction) {
			t.Errorf("the others are told of %d before its guest is ready: %v", n.Fraction, all)
		}
		if err := s.Check(guest, of("c1")); err != nil {
			t.Fatal(err)
		}
		return n
	}
	if n := join("g1", "u1n1-1"); n.Fraction != 1 || n.OwnMAC || n.Pod != "web" {
		t.Errorf("first note is %+v", n)
	}
	told := len(loop().announced)
	if err := s.Check("g1", of("c1")); err != nil || len(loop().announced) != told+1 || loop().announced[told] != loop().announced[told-1] {
		t.Errorf("an endpoint that asks is told %v, %v after %d; want the last of them again", loop().announced, err, told)
	}
	if n := join("g2", "u2n1-1"); n.Fraction != 2 {
		t.Errorf("second note is %+v", n)
	}
	if o := loop().options; o.Limit.Rate != 70 || o.Limit.Burst != 70 || o.Mode != reflector.Unicast {
		t.Errorf("options are %+v", o)
	}
	last := loop().announced[len(loop().announced)-1]
	if last.Members != segment.Of(1, 2) || last.Generation != 2 {
		t.Errorf("announced %+v", loop().announced)
	}
	if names := slices.Sorted(maps.Keys(loop().names)); !slices.Equal(names, []string{"u1n1-1.1.c1@eth0", "u2n1-1.2.c1@eth0"}) {
		t.Errorf("names are %q", names)
	}
	if got, ok := parseLabel(loop().alias); !ok || got.generation != 2 || got.pod != "web" || strings.Contains(loop().alias, testKey) {
		t.Errorf("alias is %q", loop().alias)
	}

	// While it leaves it is not a member and has no key, but its number is taken.
	if endpoint, err := s.Disconnect("u1n1-1"); !endpoint || err != nil {
		t.Errorf("got %t, %v", endpoint, err)
	}
	if last = loop().announced[len(loop().announced)-1]; last.Members != segment.Of(2) || !loop().names["u1n1-1.1"] || loop().names["u1n1-1.1.c1@eth0"] {
		t.Errorf("announced %+v, names %v", last, loop().names)
	}
	if n := join("g3", "u3n1-1"); n.Fraction != 3 {
		t.Errorf("third note is %+v", n)
	}
	if _, err := s.Reserve(tenant, asked("web"), "g1", of("c2"), 0); !errors.Is(err, ErrTwice) {
		t.Errorf("second endpoint of a guest: got %v", err)
	}
	first := loop()
	for _, port := range []string{"u1n1-1", "u2n1-1", "u3n1-1"} {
		if first.deleted {
			t.Error("the segment is gone before the last")
		}
		if endpoint, err := s.ClosePort(port); !endpoint || err != nil {
			t.Errorf("close %s: %t, %v", port, endpoint, err)
		}
	}
	if !first.deleted || len(s.segments)+len(s.endpoints)+len(s.ports) > 0 || len(first.names) > 0 {
		t.Errorf("left: %v, %v, %v, names %v, TAP deleted %t", s.segments, s.endpoints, s.ports, first.names, first.deleted)
	}
	if endpoint, err := s.ClosePort("u1n1-1"); endpoint || err != nil {
		t.Errorf("second close: %t, %v", endpoint, err)
	}
}

// Requests to join that are admitted or refused.
func TestAdmission(t *testing.T) {
	tenant := quota.Tenant{Name: "a", Limits: quota.Limits{Segments: 2}}
	few := quota.Tenant{Name: "b", Limits: quota.Limits{Endpoints: 1}, Segments: quota.Segments{Modes: []string{quota.SegmentUnicast}}}
	s, _ := fakeSegments(t)
	for i, c := range []struct {
		tenant quota.Tenant
		want   Spec
		guest  string
		err    error
	}{
		{tenant, Spec{Pod: "web", Key: testKey, Mode: "plain", Network: "n"}, "g1", nil},
		{tenant, Spec{Pod: "web", Key: testKey, Network: "n"}, "g2", nil},
		{tenant, Spec{Pod: "web", Key: testKey, Mode: "unicast", Network: "n"}, "g3", ErrDiffers},
		{tenant, Spec{Pod: "web", Key: testKey}, "g3", ErrDiffers},
		{tenant, Spec{Pod: "web", Key: testKey + "0", Network: "n"}, "g3", ErrKey},
		{tenant, Spec{Pod: "web", Key: testKey[1:], Mode: "unicast"}, "g3", ErrKey}, // no word of the mode
		{tenant, Spec{Pod: "db", Key: testKey}, "g1", nil},
		{tenant, Spec{Pod: "third", Key: testKey}, "g1", quota.ErrLimit},
		{few, Spec{Pod: "web", Key: "another of b's..", Mode: "plain"}, "g9", quota.ErrSegmentMode},
		{few, Spec{Pod: "web", Key: "another of b's.."}, "g9", nil}, // the same name, another tenant
		{few, Spec{Pod: "web", Key: "another of b's.."}, "g8", quota.ErrLimit},
	} {
		_, err := s.Reserve(c.tenant, c.want, c.guest, of(fmt.Sprint("c", i)), 0)
		if !errors.Is(err, c.err) || (err == nil) != (c.err == nil) {
			t.Errorf("%d: %s, %+v: got %v, want %v", i, c.tenant.Name, c.want, err, c.err)
		}
	}
	if n := s.Count("a") + s.Count("b"); n != 3 {
		t.Errorf("%d segments, want 3", n)
	}
	if _, err := s.Reserve(tenant, asked("db"), "g1", of("c0"), 0); !errors.Is(err, ErrElsewhere) {
		t.Errorf("an attachment that is in another segment: got %v", err)
	}
	for _, c := range []struct {
		pod, key, guest string
		want            error
	}{
		{"web", "", "g1", nil}, {"web", testKey, "g7", nil}, {"web", "", "g7", ErrKey}, {"web", "x", "g1", ErrKey}, {"none", "", "g1", ErrNoSegment},
	} {
		if _, err := s.Find("a", c.pod, c.key, c.guest); !errors.Is(err, c.want) || (err == nil) != (c.want == nil) {
			t.Errorf("find %s as %s with key %q: got %v, want %v", c.pod, c.guest, c.key, err, c.want)
		}
	}
}

// No two NICs of a guest have the same MAC, whichever segments they belong to. The
// seventeenth fraction of a segment is refused.
func TestFractions(t *testing.T) {
	s, _ := fakeSegments(t)
	tenant := quota.Tenant{Name: "a"}
	seen := map[segment.Fraction]bool{}
	for i := range 20 {
		n, err := s.Reserve(tenant, asked(fmt.Sprint("pod", i)), "g1", of(fmt.Sprint("c", i)), segment.Of(3))
		if err != nil {
			t.Fatal(err)
		}
		if n.OwnMAC != (i >= 15) || !n.OwnMAC && (n.Fraction == 3 || seen[n.Fraction]) {
			t.Errorf("endpoint %d is fraction %d, own MAC %t", i, n.Fraction, n.OwnMAC)
		}
		seen[n.Fraction] = true
	}
	for i := range 16 {
		n, err := s.Reserve(tenant, asked("wide"), fmt.Sprint("h", i), of("c"), 0)
		if err != nil || n.Fraction != segment.Fraction(i+1) {
			t.Errorf("endpoint %d is fraction %d, %v", i, n.Fraction, err)
		}
	}
	_, err := s.Reserve(tenant, asked("wide"), "h16", of("c"), 0)
	if !errors.Is(err, quota.ErrLimit) {
		t.Errorf("the seventeenth: got %v", err)
	}
}

// An endpoint that fails, or is released before it has a queue, leaves nothing.
func TestEndpointsThatFail(t *testing.T) {
	s, made := fakeSegments(t)
	tenant := quota.Tenant{Name: "a"}
	if _, err := s.Reserve(tenant, asked("web"), "g1", of("c1"), 0); err != nil {
		t.Fatal(err)
	}
	loop := made[TAP("a", "web")]
	loop.fail = errors.New("injected error")
	if _, err := s.Open("g1", of("c1"), "u1n1-1"); err == nil || len(s.ports) > 0 {
		t.Errorf("got %v, ports %v", err, s.ports)
	}
	if err := s.Release("g1", of("c1")); err != nil || !loop.deleted || len(s.segments) > 0 {
		t.Errorf("got %v, TAP deleted %t, segments %v", err, loop.deleted, s.segments)
	}
	if _, err := s.Open("g1", of("c1"), "u1n1-2"); !errors.Is(err, hotplug.ErrDetached) {
		t.Errorf("given up: got %v", err)
	}

	// A guest that is gone, with one endpoint ready and one half done.
	for i, pod := range []string{"web", "db"} {
		key := of(fmt.Sprint("c", i))
		if _, err := s.Reserve(tenant, asked(pod), "g1", key, 0); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Open("g1", key, fmt.Sprint("u1n", i, "-1")); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := s.Reserve(tenant, asked("web"), "g2", of("c"), 0); err != nil {
		t.Fatal(err)
	}
	if err := s.RemoveGuest("g1"); err != nil || len(s.segments) != 1 || len(s.endpoints) != 1 || len(s.ports) != 0 || s.Has("g1") || !s.Has("g2") {
		t.Errorf("got %v, segments %v, endpoints %v, ports %v", err, s.segments, s.endpoints, s.ports)
	}

	// If another program deletes the TAP, Gone says so, Tick returns its guests, and the pod may join again.
	if _, err := s.Open("g2", of("c"), "u2n1-1"); err != nil {
		t.Fatal(err)
	}
	gone := func(port string, endpoint, want bool) {
		t.Helper()
		if is, gone := s.Gone(port); is != endpoint || gone != want {
			t.Errorf("%s is an endpoint's: %t, gone: %t; want %t and %t", port, is, gone, endpoint, want)
		}
	}
	gone("u2n1-1", true, false)
	gone("u2n1-2", false, false)
	made[TAP("a", "web")].deleted = true
	gone("u2n1-1", true, true)
	if affected := s.Tick("a"); !slices.Equal(affected, []string{"g2"}) || len(s.segments) != 0 {
		t.Errorf("affected are %q, segments %v", affected, s.segments)
	}
	gone("u2n1-1", true, true)
	if _, err := s.Reserve(tenant, asked("web"), "g2", of("c"), 0); !errors.Is(err, hotplug.ErrDetaching) {
		t.Errorf("before its NIC is gone: got %v", err)
	}
	if err := s.Release("g2", of("c")); err != nil {
		t.Error(err)
	}
	if _, err := s.Reserve(tenant, asked("web"), "g2", of("c"), 0); err != nil {
		t.Error(err)
	}
}

// A segment that was created and stays empty is destroyed after emptyTime.
func TestCreatedSegment(t *testing.T) {
	s, made := fakeSegments(t)
	tenant := quota.Tenant{Name: "a"}
	for range 2 {
		if got, err := s.Create(tenant, asked("web")); err != nil || got.Mode != quota.SegmentUnicast || len(got.Fractions) > 0 {
			t.Errorf("got %+v, %v", got, err)
		}
	}
	loop := made[TAP("a", "web")]
	if s.Tick("a"); loop.deleted {
		t.Error("the empty segment is destroyed at once")
	}
	s.segments["a/web"].created = time.Now().Add(-emptyTime)
	if s.Tick("a"); !loop.deleted || len(s.segments) > 0 {
		t.Error("the empty segment is not destroyed")
	}
	if _, err := s.Create(tenant, asked("web")); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Create(tenant, Spec{Pod: "web", Key: "not that of the segment"}); !errors.Is(err, ErrKey) {
		t.Errorf("another key: got %v", err)
	}
}

// The others are told of a member when its guest has connected the pod, or after joinTime, also
// if the guest says nothing.
func TestAnnouncedWhenReady(t *testing.T) {
	s, made := fakeSegments(t)
	for i, guest := range []string{"g1", "g2"} {
		if _, err := s.Reserve(quota.Tenant{Name: "a"}, asked("web"), guest, of("c"), 0); err != nil {
			t.Fatal(err)
		}
		port := fmt.Sprintf("u%dn1-1", i+1)
		f, err := s.Open(guest, of("c"), port)
		if err == nil {
			err = errors.Join(f.Close(), s.Connect(port, of("c")))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	p, l := s.segments["a/web"], made[TAP("a", "web")]
	last := func() segment.Membership { return l.announced[len(l.announced)-1] }
	told := func(port string, want segment.Membership) {
		t.Helper()
		if _, m := s.Membership(port); m != want {
			t.Errorf("the guest at %s is told %v, want %v", port, m, want)
		}
	}
	told("u1n1-1", segment.Membership{Members: segment.Of(1)})
	told("u2n1-1", segment.Membership{Members: segment.Of(2)})
	s.Tick("a")
	if last().Members != 0 {
		t.Errorf("announced %v before the guests are ready", last())
	}
	if err := s.Check("g1", of("c")); err != nil || last() != (segment.Membership{Generation: 1, Members: segment.Of(1)}) {
		t.Errorf("announced %v, %v, when the first is ready", last(), err)
	}
	s.Tick("a")
	if last() != (segment.Membership{Generation: 1, Members: segment.Of(1)}) {
		t.Errorf("announced %v while the second is not ready", last())
	}
	told("u1n1-1", last()) // its ADD waits for no others
	p.endpoints[2].joining = time.Now().Add(-joinTime - time.Second)
	s.Tick("a")
	if last() != (segment.Membership{Generation: 2, Members: segment.Of(1, 2)}) {
		t.Errorf("announced %v after %v", last(), joinTime)
	}
}

// When a member does not answer, the log and the status say so, and the others are told; and again
// when it answers.
func TestSilentMember(t *testing.T) {
	s, made := fakeSegments(t)
	var log bytes.Buffer
	s.log = slog.New(slog.NewTextHandler(&log, nil))
	liveOn := func(guest, port string) {
		t.Helper()
		_, err := s.Reserve(quota.Tenant{Name: "a"}, asked("web"), guest, of("c"), 0)
		if err != nil {
			t.Fatal(err)
		}
		f, err := s.Open(guest, of("c"), port)
		if err == nil {
			err = errors.Join(f.Close(), s.Connect(port, of("c")), s.Check(guest, of("c")))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	liveOn("g1", "u1n1-1")
	liveOn("g2", "u2n1-1")
	l := made[TAP("a", "web")]
	for _, c := range []struct {
		silent segment.Set
		said   string
	}{{0, ""}, {segment.Of(2, 9), "does not answer"}, {segment.Of(2), ""}, {0, "answers again"}} {
		log.Reset()
		l.silent = c.silent
		s.Tick("a")
		want := segment.Membership{Generation: 2, Members: segment.Of(1, 2), Silent: c.silent & segment.Of(1, 2)}
		if got := l.announced[len(l.announced)-1]; got != want {
			t.Errorf("silent %s: announced %+v, want %+v", c.silent, got, want)
		}
		if got := log.String(); (got != "") != (c.said != "") || !strings.Contains(got, c.said) || c.said != "" && !strings.Contains(got, "guest=g2") {
			t.Errorf("silent %s: the log has %q, want %q", c.silent, got, c.said)
		}
		if got := s.Status()[0].Fractions; got[0].Silent || got[1].Silent != c.silent.Has(2) {
			t.Errorf("silent %s: status is %+v", c.silent, got)
		}
	}
}

// Random sequences of calls. At any time each open endpoint has a queue, and the connected
// endpoints are announced. At the end nothing is left.
func TestSegmentsAtRandom(t *testing.T) {
	seedtest.Each(t, 200, func(t *testing.T, seed uint64) int {
		const steps = 200
		rng := rand.New(rand.NewPCG(seed, 2))
		s, made := fakeSegments(t)
		s.log = slog.New(slog.DiscardHandler)
		tenant := quota.Tenant{Name: "a", Limits: quota.Limits{Segments: 3, Endpoints: 4}}
		state := map[string]int{} // by guest: 1 reserved, 2 open, 3 connected, 4 disconnected
		for step := range steps {
			number := rng.IntN(6)
			guest, key, port := fmt.Sprint("g", number), of("c"), fmt.Sprintf("u%dn1-%d", number+1, step+1)
			if st := s.endpoints[owner{guest, key}]; st != nil && st.port != "" {
				port = st.port
			}
			switch rng.IntN(7) {
			case 6:
				if err := s.Check(guest, key); (err == nil) != (state[guest] == 3) {
					t.Fatalf("check in state %d: %v", state[guest], err)
				}
			case 0, 1:
				if state[guest] == 0 {
					if _, err := s.Reserve(tenant, asked(fmt.Sprint("p", rng.IntN(4))), guest, key, 0); err == nil {
						state[guest] = 1
					}
				}
			case 2:
				if f, err := s.Open(guest, key, port); (err == nil) != (state[guest] == 1) {
					t.Fatalf("open in state %d: %v", state[guest], err)
				} else if err == nil {
					f.Close()
					state[guest] = 2
				}
			case 3:
				if state[guest] == 2 || state[guest] == 3 {
					if err := s.Connect(port, key); err != nil {
						t.Fatal(err)
					}
					state[guest] = 3
				}
			case 4:
				if state[guest] == 3 {
					if _, err := s.Disconnect(port); err != nil {
						t.Fatal(err)
					}
					state[guest] = 4
				}
			case 5:
				_, err := s.ClosePort(port)
				if err := errors.Join(err, s.Release(guest, key)); err != nil {
					t.Fatal(err)
				}
				state[guest] = 0
			}
			checkSegments(t, s, state)
		}
		for guest := range state {
			if err := s.RemoveGuest(guest); err != nil {
				t.Fatal(err)
			}
		}
		for _, l := range made {
			if !l.deleted || len(l.names) > 0 || l.queues != 0 {
				t.Fatalf("left %+v", l)
			}
		}
		return steps
	})
}

func checkSegments(t *testing.T, s *Registry, state map[string]int) {
	t.Helper()
	endpoints := 0
	for _, p := range s.segments {
		l := p.loop.(*fakeLoopback)
		var queues, members segment.Set
		for f, st := range p.endpoints {
			endpoints++
			if state[st.guest] >= 2 {
				queues = queues.With(f)
			}
			if state[st.guest] == 3 {
				members = members.With(f)
			}
		}
		if l.deleted || len(p.endpoints) == 0 || l.queues != queues || p.members != members || len(l.names) != queues.Len() {
			t.Fatalf("segment %s has queues %s, members %s, names %v; want %s and %s", p.pod, l.queues, p.members, l.names, queues, members)
		}
		if n := len(l.announced); n > 0 && l.announced[n-1] != p.announcement() || int(p.generation) > n {
			t.Fatalf("announced %v, is %+v", l.announced, p.announcement())
		}
	}
	for _, st := range state {
		if st > 0 {
			endpoints--
		}
	}
	if endpoints != 0 {
		t.Fatalf("%d endpoints too many", endpoints)
	}
}
