package certificates

import (
	"fmt"
	"testing"
	"time"
)

// A guest without certificates is offered one, uses it and renews it: then it is superseded,
// and another has to be offered.
func TestOffer(t *testing.T) {
	s := Set{Enrolled: "0"}
	if s.Offered("a", begin) || s.Offered("", begin) || s.Revoked() {
		t.Error("a set without certificates has one")
	}
	s = s.Offer(certificate("a"), begin)
	want(t, "offered", s, begin, "a")
	if _, ok := s.Current(begin); ok {
		t.Error("a guest that has not called uses a certificate")
	}
	if !s.Offered("a", begin) || s.Offered("b", begin) {
		t.Error("the offer does not stay")
	}
	s = s.Use("a", begin)
	if !s.Offered("a", begin) {
		t.Error("the offer does not stay when it is used")
	}
	s = renew(t, s, "a", "b", begin).Use("b", begin)
	if want(t, "renewed", s, begin, "ab"); s.Offered("a", begin) {
		t.Error("a superseded certificate stays offered")
	}
	s = s.Offer(certificate("c"), begin)
	want(t, "after the grace", s, begin.Add(Grace), "bc")
	if c, _ := s.Current(begin); c.SHA256 != "b" {
		t.Errorf("the guest uses %s", c.SHA256)
	}
}

// An offer is replaced when a third of its life is left, or when it has not begun, because the clock was ahead.
func TestOfferEnds(t *testing.T) {
	s := Set{Enrolled: "0"}.Offer(certificate("a"), begin)
	for left, stays := range map[time.Duration]bool{OfferLeft: true, OfferLeft - time.Second: false, -time.Second: false, offerLife: true, offerLife + time.Second: false} {
		if got := s.Offered("a", certificate("a").Expires.Add(-left)); got != stays {
			t.Errorf("%v before it expires: offered %v", left, got)
		}
	}
	if s = s.Withdraw("a"); len(s.Certificates) != 0 {
		t.Errorf("withdrawn: got %v", s.Certificates)
	}
	if s = New(certificate("a")).Withdraw("a"); len(s.Certificates) != 1 {
		t.Error("a used certificate was withdrawn")
	}
}

// A guest all of whose certificates were revoked gets no other. One of them, or those that
// have expired, do not matter.
func TestOfferAfterRevocation(t *testing.T) {
	s := renew(t, New(certificate("a")), "a", "b", begin).Use("b", begin)
	one, _, err := s.Revoke("0ab", begin)
	if err != nil || one.Revoked() {
		t.Errorf("one revoked: error %v, all %v", err, one.Revoked())
	}
	all, _, err := s.Revoke("", begin)
	if err != nil || !all.Revoked() || all.Offered("a", begin) || all.Offered("b", begin) {
		t.Errorf("all revoked: error %v, got %+v", err, all)
	}
	if _, revoked, err := (Set{Enrolled: "0"}).Revoke("", begin); err != nil || len(revoked) > 0 {
		t.Errorf("revoked nothing: got %v, error %v", revoked, err)
	}
}

// Offers do not grow the set, and leave the certificate that the guest uses.
func TestOffersAreLimited(t *testing.T) {
	s := New(certificate("used"))
	for i := range 20 {
		s = s.Offer(certificate(fmt.Sprint(i)), begin)
	}
	if err := s.Check("used", begin); err != nil || len(s.Certificates) != Live {
		t.Errorf("%d certificates, that of the guest: %v", len(s.Certificates), err)
	}
}
