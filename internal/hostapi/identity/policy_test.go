package identity

import (
	"crypto/x509"
	"errors"
	"net/url"
	"testing"
	"time"
)

// A certificate is that of one guest or of the policy client of one tenant, never of both.
func TestPolicyTenant(t *testing.T) {
	a := open(t, t.TempDir())
	client, err := a.IssuePolicy("shop")
	c := pairOf(t, client, err).Leaf
	if tenant, err := PolicyTenant(c); tenant != "shop" || err != nil {
		t.Errorf("got tenant %q, error %v, want shop", tenant, err)
	}
	if _, err := nameOf(c); !errors.Is(err, ErrNoGuest) {
		t.Errorf("as a guest: got %v, want ErrNoGuest", err)
	}
	if left := time.Until(c.NotAfter); left > PolicyValidity {
		t.Errorf("valid for %v, want at most %v", left, PolicyValidity)
	}
	if _, err := a.IssuePolicy("../shop"); err == nil {
		t.Error("a tenant that is not a DNS label: there was no error")
	}
	guest, err := a.Issue("shop")
	for what, c := range map[string]*x509.Certificate{
		"guest":         pairOf(t, guest, err).Leaf,
		"without URI":   {},
		"two URIs":      {URIs: []*url.URL{policyURI("shop"), policyURI("other")}},
		"guest and URI": {URIs: []*url.URL{guestURI("shop"), policyURI("shop")}},
		"no tenant":     {URIs: []*url.URL{policyURI("")}},
		"no label":      {URIs: []*url.URL{policyURI("a/b")}},
		"a query":       {URIs: []*url.URL{{Scheme: "unnest", Host: "policy", Path: "/shop", RawQuery: "x"}}},
	} {
		if tenant, err := PolicyTenant(c); tenant != "" || !errors.Is(err, ErrNoPolicyClient) {
			t.Errorf("%s: got tenant %q, error %v, want ErrNoPolicyClient", what, tenant, err)
		}
	}
}
