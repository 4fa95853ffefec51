package certificates

import (
	"encoding/json"
	"errors"
	"fmt"
	"testing"
	"time"
)

// Whatever is in a guest's file, and in whichever order certificates are used, renewed and
// revoked: nothing panics, a revoked or unknown certificate is never accepted, and renewing
// does not add more than Live.
func FuzzSet(f *testing.F) {
	now := time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)
	add := func(s Set, operations string) {
		content, err := json.Marshal(s)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(content, operations)
	}
	add(New(Certificate{SHA256: "a", Serial: "0A"}), "RRRRRURUX")
	twice := New(Certificate{SHA256: "a"})
	for range Live + 1 {
		twice.Certificates = append(twice.Certificates, Certificate{SHA256: "a"})
	}
	add(twice, "R")
	f.Add([]byte(`{"enrolled":"a","certificates":[{"sha256":"a","until":"2026-11-22T12:05:00Z"},{"sha256":"b","unused":true}]}`), "URX")
	f.Fuzz(func(t *testing.T, content []byte, operations string) {
		var s Set
		if json.Unmarshal(content, &s) != nil || len(operations) > 50 {
			return
		}
		before := s.countLive(now)
		for i, operation := range operations {
			c, _ := s.Current(now)
			switch operation {
			case 'U':
				s = s.Use(c.SHA256, now)
			case 'X':
				s, _, _ = s.Revoke(c.Serial, now)
			case 'R':
				s, _ = s.Renew(c.SHA256, Certificate{SHA256: fmt.Sprintf("new%d", i)}, now)
			}
		}
		if err := s.Check("nobody's", now); !errors.Is(err, ErrUnknown) {
			t.Errorf("unknown certificate: %v", err)
		}
		for _, c := range s.Certificates {
			if first := s.Certificates[s.index(c.SHA256)]; s.Check(c.SHA256, now) == nil && !first.Revoked.IsZero() {
				t.Errorf("revoked certificate %+v is accepted", c)
			}
		}
		if n := s.countLive(now); n > max(before, Live)+1 {
			t.Errorf("%d certificates are accepted, %d before", n, before)
		}
	})
}
