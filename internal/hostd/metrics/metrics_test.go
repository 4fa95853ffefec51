package metrics

import (
	"context"
	"errors"
	"net/http/httptest"
	"os"
	"regexp"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/goccy/go-yaml"
	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"

	"unnest.io/unnest/internal/hostapi/segment"
	"unnest.io/unnest/internal/hostd/status"
)

type fakeSource struct{}

func (fakeSource) Status(context.Context) status.Status {
	return status.Status{
		Guests: []status.Guest{
			{Name: "node1", Tenant: "shop", Slots: 4, SlotsFree: 2, SlotsQuarantined: 1, SlotsForeign: 3, Pool: 1, PoolTarget: 2, Attachments: 3},
			{Name: "node2", Tenant: "shop", Error: "no answer"},
		},
		Tenants:       []status.Tenant{{Name: "shop", AddressesInUse: 5, AddressesCooling: 6, Segments: 1}},
		Configuration: status.Configuration{Error: "a mistake"},
		Unguarded: []status.Port{
			{Tenant: "shop", Bridge: "br0", Interface: "tap1"}, {Tenant: "shop", Bridge: "br0", Interface: "tap2", Intended: true},
		},
		Segments: []status.Segment{{
			Tenant: "shop", Pod: "web", Fractions: []status.Fraction{{Fraction: 1, Member: true}, {Fraction: 2}},
			Counts: map[segment.Fraction]status.Frames{1: {Frames: 7, Bytes: 8, Spoofed: 9}},
		}},
	}
}

func (fakeSource) GuestDrops() map[string]uint64 { return map[string]uint64{"node1": 11} }

func (fakeSource) Drops() map[string]uint64 { return map[string]uint64{"mac": 10} }

// Dashboards read these names and labels.
func TestScrape(t *testing.T) {
	m := New()
	m.Read(fakeSource{})
	m.Request("AttachNIC", codes.OK, time.Now())
	m.Attached("pool", time.Now(), nil)
	m.Attached("plug", time.Now(), grpcstatus.Error(codes.ResourceExhausted, "full"))
	m.Detached("hotplug", time.Now(), errors.New("no code"))
	m.Lost("node1")
	m.RefusedConnection()
	m.Built(Build{Version: "v1.2.3", Revision: "abc"})
	m.FilterRestored(Antispoof, nil)
	m.FilterRestored(Tenants, errors.New("no"))
	w := httptest.NewRecorder()
	m.Handler().ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
	for _, line := range strings.Split(`unnest_hostd_requests_total{code="OK",verb="AttachNIC"} 1
unnest_hostd_request_seconds_count{verb="AttachNIC"} 1
unnest_hostd_attach_seconds_count{result="OK",source="pool"} 1
unnest_hostd_attach_seconds_count{result="ResourceExhausted",source="plug"} 1
unnest_hostd_detach_seconds_count{mode="hotplug",result="Unknown"} 1
unnest_hostd_lost_nics_total{guest="node1"} 1
unnest_hostd_refused_connections_total 1
unnest_hostd_filter_restores_total{filter="antispoof",result="ok"} 1
unnest_hostd_filter_restores_total{filter="antispoof",result="error"} 0
unnest_hostd_filter_restores_total{filter="tenants",result="error"} 1
unnest_hostd_filter_restores_total{filter="isolation",result="ok"} 0
unnest_hostd_attachments{guest="node1",tenant="shop"} 3
unnest_hostd_slots{guest="node1",state="all"} 4
unnest_hostd_slots{guest="node1",state="free"} 2
unnest_hostd_slots{guest="node1",state="quarantined"} 1
unnest_hostd_slots{guest="node1",state="foreign"} 3
unnest_hostd_pool_nics{guest="node1"} 1
unnest_hostd_pool_target{guest="node1"} 2
unnest_hostd_guest_up{guest="node1"} 1
unnest_hostd_guest_up{guest="node2"} 0
unnest_hostd_addresses{state="in use",tenant="shop"} 5
unnest_hostd_addresses{state="cooling",tenant="shop"} 6
unnest_hostd_dropped_frames_total{reason="mac"} 10
unnest_hostd_guest_dropped_frames_total{guest="node1"} 11
unnest_build_info{goversion="`+runtime.Version()+`",revision="abc",version="v1.2.3"} 1
unnest_hostd_segments{tenant="shop"} 1
unnest_hostd_unguarded_ports{tenant="shop"} 1
unnest_hostd_configuration_stale{cause="mistake"} 1
unnest_hostd_configuration_stale{cause="restart"} 0
unnest_hostd_segment_endpoints{member="yes",pod="web",tenant="shop"} 1
unnest_hostd_segment_endpoints{member="no",pod="web",tenant="shop"} 1
unnest_hostd_segment_frames_total{pod="web",tenant="shop"} 7
unnest_hostd_segment_bytes_total{pod="web",tenant="shop"} 8
unnest_hostd_segment_dropped_frames_total{pod="web",reason="spoofed",tenant="shop"} 9`, "\n") {
		if !strings.Contains(w.Body.String(), line+"\n") {
			t.Errorf("the scrape has no line %q", line)
		}
	}
}

// The alerts that we ship use metrics that exist, with values before the first event.
func TestAlerts(t *testing.T) {
	rules, err := os.ReadFile("../../../deploy/prometheus/unnest.rules.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var file struct {
		Groups []struct {
			Rules []struct{ Alert, Expr string }
		}
	}
	if err := yaml.Unmarshal(rules, &file); err != nil {
		t.Fatal(err)
	}
	m := New()
	m.Read(fakeSource{})
	w := httptest.NewRecorder()
	m.Handler().ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
	alerts := 0
	for _, g := range file.Groups {
		for _, r := range g.Rules {
			names := regexp.MustCompile(`unnest_\w+`).FindAllString(r.Expr, -1)
			for _, name := range names {
				if !regexp.MustCompile("(?m)^" + name + "[{ ]").MatchString(w.Body.String()) {
					t.Errorf("alert %s: there is no metric %s", r.Alert, name)
				}
			}
			if r.Alert == "" || len(names) == 0 {
				t.Errorf("alert %q has the expression %q", r.Alert, r.Expr)
			}
			alerts++
		}
	}
	if alerts < 3 {
		t.Errorf("%d alerts, want at least 3", alerts)
	}
}
