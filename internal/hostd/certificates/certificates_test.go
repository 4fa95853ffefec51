package certificates

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"
)

var begin = time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)

func certificate(name string) Certificate {
	return Certificate{SHA256: name, Serial: "0a" + name, Expires: begin.Add(30 * 24 * time.Hour)}
}

// want fails unless exactly the given certificates of a to e are accepted.
func want(t *testing.T, when string, s Set, now time.Time, names string) {
	t.Helper()
	got := ""
	for _, name := range []string{"a", "b", "c", "d", "e", "f", "g"} {
		if s.Check(name, now) == nil {
			got += name
		}
	}
	if got != names {
		t.Errorf("%s: accepted are %q, want %q", when, got, names)
	}
}

func renew(t *testing.T, s Set, present, name string, now time.Time) Set {
	t.Helper()
	s, err := s.Renew(present, certificate(name), now)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// The old certificate is accepted until the grace after the first use of the new one.
func TestRenewal(t *testing.T) {
	s := New(certificate("a"))
	want(t, "enrolled", s, begin, "a")
	s = renew(t, s, "a", "b", begin)
	want(t, "renewed", s, begin.Add(24*time.Hour), "ab")
	if c, _ := s.Current(begin); c.SHA256 != "a" {
		t.Errorf("current is %s before the other is used", c.SHA256)
	}
	used := begin.Add(time.Hour)
	s = s.Use("b", used)
	want(t, "used", s, used.Add(Grace-time.Second), "ab")
	want(t, "after the grace", s, used.Add(Grace), "b")
	if err := s.Check("a", used.Add(Grace)); !errors.Is(err, ErrSuperseded) {
		t.Errorf("got %v", err)
	}
	if c, _ := s.Current(used); c.SHA256 != "b" {
		t.Errorf("current is %s", c.SHA256)
	}
	if again := s.Use("b", used.Add(time.Minute)); again.Certificates[0].Until != used.Add(Grace) {
		t.Error("a later use extends the grace")
	}
	if back := s.Use("a", used.Add(time.Minute)); len(back.Certificates) != 2 || back.Certificates[1].Until != (time.Time{}) {
		t.Error("use of the old one supersedes the new one")
	}
}

// Who has a certificate that is superseded, revoked or unknown cannot renew it.
func TestRenewalIsRefused(t *testing.T) {
	s := renew(t, New(certificate("a")), "a", "b", begin).Use("b", begin)
	for _, at := range []time.Duration{0, Grace} {
		if _, err := s.Renew("a", certificate("c"), begin.Add(at)); !errors.Is(err, ErrSuperseded) {
			t.Errorf("superseded for %v: got %v", at, err)
		}
	}
	if _, err := s.Renew("x", certificate("c"), begin); !errors.Is(err, ErrUnknown) {
		t.Errorf("unknown: got %v", err)
	}
	s, _, err := s.Revoke("", begin)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"a", "b"} {
		if _, err := s.Renew(name, certificate("c"), begin); !errors.Is(err, ErrRevoked) {
			t.Errorf("revoked %s: got %v", name, err)
		}
	}
}

func TestRevoke(t *testing.T) {
	s := renew(t, New(certificate("a")), "a", "b", begin)
	if _, revoked, err := s.Revoke("A:0A", begin); err == nil {
		t.Errorf("a serial that nobody has: revoked %v", revoked)
	}
	one, revoked, err := s.Revoke("00:0A:A", begin) // 0aa
	if err != nil || len(revoked) != 1 || revoked[0].SHA256 != "a" {
		t.Errorf("revoked %v, error %v", revoked, err)
	}
	want(t, "one", one, begin, "b")
	want(t, "the set before", s, begin, "ab")
	all, revoked, err := one.Revoke("", begin)
	if err != nil || len(revoked) != 1 || revoked[0].SHA256 != "b" {
		t.Errorf("revoked %v, error %v", revoked, err)
	}
	want(t, "all", all, begin, "")
	if _, ok := all.Current(begin); ok {
		t.Error("a revoked certificate is current")
	}
	if all.Use("b", begin).Check("b", begin) == nil {
		t.Error("the use of a revoked certificate makes it good")
	}
	if _, _, err := all.Revoke("ff", begin); !errors.Is(err, ErrNoSerial) {
		t.Errorf("no such serial: got %v", err)
	}
	unknown := New(Certificate{SHA256: "a"}) // of an earlier version
	if _, _, err := unknown.Revoke("0", begin); !errors.Is(err, ErrNoSerial) {
		t.Errorf("serial not known: got %v", err)
	}
}

// A guest whose renewals fail after the answer can renew again, and has no more than Live.
func TestLostAnswers(t *testing.T) {
	s := New(certificate("a"))
	for i, name := range []string{"b", "c", "d", "e", "f"} {
		s = renew(t, s, "a", name, begin.Add(time.Duration(i)*time.Hour))
	}
	want(t, "five answers are lost", s, begin, "adef")
	s = s.Use("e", begin)
	want(t, "after the grace", s, begin.Add(Grace), "ef")
}

// At random, no set accepts more than Live certificates or grows without bound, the
// present one is always accepted, and what is refused stays refused.
func TestAtRandom(t *testing.T) {
	for seed := range uint64(200) {
		rng := rand.New(rand.NewPCG(seed, 1))
		s, now, made := New(certificate("0")), begin, 1
		refused := map[string]bool{}
		for range 300 {
			now = now.Add(time.Duration(rng.IntN(int(Grace))))
			name := fmt.Sprint(rng.IntN(made))
			before := s.Check(name, now)
			switch rng.IntN(4) {
			case 0:
				s = s.Use(name, now)
			case 1, 2:
				next := fmt.Sprint(made)
				got, err := s.Use(name, now).Renew(name, certificate(next), now)
				if err == nil {
					s = got
					made++
				}
				if err == nil && (before != nil || s.Check(name, now) != nil || s.Check(next, now) != nil) {
					t.Fatalf("seed %d: %s renewed to %s: before %v; set %+v", seed, name, next, before, s)
				}
			case 3:
				if rng.IntN(10) == 0 {
					s, _, _ = s.Revoke("0a"+name, now)
				}
			}
			if n := s.countLive(now); n > Live || len(s.Certificates) > Live+ended+1 {
				t.Fatalf("seed %d: %d live of %d", seed, n, len(s.Certificates))
			}
			for i := range made {
				name := fmt.Sprint(i)
				err := s.Check(name, now)
				if err == nil && refused[name] {
					t.Fatalf("seed %d: %s is accepted again", seed, name)
				}
				refused[name] = err != nil
			}
		}
	}
}
