package link

import (
	"context"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/containernetworking/plugins/pkg/ns"
	"github.com/vishvananda/netlink"
)

func inNamespace(t *testing.T, f func() error) {
	t.Helper()
	if os.Getenv("UNNEST_PRIVILEGED") != "1" {
		t.Skip("needs root and network namespaces: set UNNEST_PRIVILEGED=1")
	}
	host, err := ns.TempNetNS()
	if err != nil {
		t.Fatal(err)
	}
	defer host.Close()
	if err := host.Do(func(ns.NetNS) error { return f() }); err != nil {
		t.Fatal(err)
	}
}

// What is changed by name is found by name, and a link that is gone is told from an error.
func TestChange(t *testing.T) {
	inNamespace(t, func() error {
		bridge := &netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: "br0"}}
		tap := &netlink.Tuntap{LinkAttrs: netlink.LinkAttrs{Name: "t0"}, Mode: netlink.TUNTAP_MODE_TAP}
		for _, l := range []netlink.Link{bridge, tap} {
			if err := netlink.LinkAdd(l); err != nil {
				return err
			}
		}
		if err := netlink.LinkSetMaster(tap, bridge); err != nil {
			return err
		}
		for what, err := range map[string]error{
			"up": SetUp("t0"), "alias": SetAlias("t0", "unnest:"), "name": AddAltName("t0", "second"), "no name": DeleteAltName("t0", "none"),
		} {
			if err != nil {
				t.Errorf("%s: %v", what, err)
			}
		}
		got, err := Find("t0")
		if err != nil || !got.Up || !got.TAP || !got.Persistent || got.Alias != "unnest:" || !slices.Equal(got.AltNames, []string{"second"}) || Bridge("t0") != "br0" {
			t.Errorf("got %+v on bridge %q, %v", got, Bridge("t0"), err)
		}
		if err := DeleteAltName("t0", "second"); err != nil {
			t.Error(err)
		}
		for range 2 {
			if err := Delete("t0"); err != nil {
				t.Error(err)
			}
		}
		if _, err := Find("t0"); !IsGone(err) {
			t.Errorf("a deleted link: got %v, want an error that it is gone", err)
		}
		if err := SetAlias("t0", ""); !IsGone(err) {
			t.Errorf("a deleted link: got %v, want an error that it is gone", err)
		}
		return nil
	})
}

// Follow tells of the links that exist, and then of those that come and go.
func TestFollow(t *testing.T) {
	inNamespace(t, func() error {
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		var seen []Event
		err := Follow(ctx, func(e Event) {
			switch {
			case e.Name == "lo" && len(seen) == 0:
				if err := netlink.LinkAdd(&netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: "d0"}}); err != nil {
					t.Error(err)
				}
				seen = append(seen, e)
			case e.Name == "d0" && len(seen) == 1:
				if err := Delete("d0"); err != nil {
					t.Error(err)
				}
				seen = append(seen, e)
			case e.Name == "d0" && e.Deleted:
				seen = append(seen, e)
				cancel()
			}
		})
		if err != nil || len(seen) != 3 || !seen[2].Deleted {
			t.Errorf("got %v, %v", seen, err)
		}
		return nil
	})
}
