package api

import (
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"unnest.io/unnest/internal/hostapi/hostdpb"
	"unnest.io/unnest/internal/hostd/attachment"
	"unnest.io/unnest/internal/hostd/quota"

	"unnest.io/unnest/internal/hostd/tenant"

	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"
)

func TestAttachmentKey(t *testing.T) {
	for _, c := range []struct {
		container, iface string
		ok               bool
	}{
		{"c", "eth0", true},
		{strings.Repeat("a", 128), "abcdefghijklmno", true},
		{"a_.-9", "net@1", true},
		{"", "eth0", false},
		{strings.Repeat("a", 129), "eth0", false},
		{"-a", "eth0", false},
		{"a/b", "eth0", false},
		{"a b", "eth0", false},
		{"a\n", "eth0", false},
		{"é", "eth0", false},
		{"c", "", false},
		{"c", "abcdefghijklmnop", false},
		{"c", ".", false},
		{"c", "..", false},
		{"c", "a/b", false},
		{"c", "a:b", false},
		{"c", "a b", false},
		{"c", "a\x00", false},
		{"c", "é", false},
	} {
		_, err := attachmentKey(attachment.NIC, c.container, c.iface)
		if (err == nil) != c.ok || err != nil && (grpcstatus.Code(err) != codes.InvalidArgument || len(err.Error()) > 400) {
			t.Errorf("%q %q: got %v, want ok %v", c.container, c.iface, err, c.ok)
		}
	}
}

// A request names a small number of addresses.
func TestAddressesOfARequest(t *testing.T) {
	p := quota.Tenant{Name: "default", Bridge: "br0", MTU: 1400}
	tenant, err := tenant.New(p, t.TempDir(), slog.New(slog.DiscardHandler), func(_ string, f func()) { f() })
	if err != nil {
		t.Fatal(err)
	}
	h := &Handler{}
	r := &hostdpb.AttachNICRequest{ContainerId: "c1", Interface: "eth0"}
	for i := range 17 {
		r.Addresses = append(r.Addresses, fmt.Sprintf("fd00::%d/64", i+1))
	}
	_, err = h.wantedNIC(tenant, r)
	if want := "17 addresses: want at most 16"; grpcstatus.Code(err) != codes.InvalidArgument || !strings.Contains(err.Error(), want) {
		t.Errorf("got %v, want InvalidArgument with %q", err, want)
	}
	r.Addresses = r.Addresses[:16]
	mapped := &hostdpb.AttachNICRequest{ContainerId: r.GetContainerId(), Interface: r.GetInterface(), Network: r.GetNetwork(), Addresses: []string{"::ffff:10.0.0.5/120"}}
	if _, err := h.wantedNIC(tenant, mapped); grpcstatus.Code(err) != codes.InvalidArgument || !strings.Contains(err.Error(), `address "::ffff:10.0.0.5/120"`) {
		t.Errorf("an IPv4 address written as an IPv6 one: got %v", err)
	}
	if w, err := h.wantedNIC(tenant, r); err != nil || len(w.Record.Addresses) != 16 {
		t.Errorf("got %v, %v, want 16 addresses", w.Record.Addresses, err)
	}
}
