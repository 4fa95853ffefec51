package quota_test

import (
	"errors"
	"testing"

	"unnest.io/unnest/internal/hostd/quota"
)

func TestSegmentModeFor(t *testing.T) {
	for _, tt := range []struct {
		modes       []string
		asked, want string // want "": refused
	}{
		{nil, "", "unicast"}, {nil, "unicast", "unicast"}, {nil, "plain", "plain"}, {nil, "multicast", ""},
		{[]string{"plain"}, "", "plain"}, {[]string{"plain"}, "plain", "plain"}, {[]string{"plain"}, "unicast", ""},
	} {
		tenant := quota.Tenant{Segments: quota.Segments{Modes: tt.modes}}
		got, err := tenant.SegmentModeFor(tt.asked)
		if got != tt.want || (err == nil) != (tt.want != "") || err != nil && !errors.Is(err, quota.ErrSegmentMode) {
			t.Errorf("%v, %q: got %q, %v, want %q", tt.modes, tt.asked, got, err, tt.want)
		}
	}
}

func TestAdmitSegments(t *testing.T) {
	for _, tt := range []struct {
		limits   quota.Limits
		is       int
		segment  bool
		endpoint bool
	}{
		{quota.Limits{}, 15, true, true},
		{quota.Limits{}, 16, true, false},
		{quota.Limits{Segments: 3, Endpoints: 4}, 2, true, true},
		{quota.Limits{Segments: 3, Endpoints: 4}, 3, false, true},
		{quota.Limits{Segments: 3, Endpoints: 4}, 4, false, false},
	} {
		tenant := quota.Tenant{Limits: tt.limits}
		for what, got := range map[string]struct {
			err  error
			want bool
		}{"segment": {tenant.AdmitSegment(tt.is), tt.segment}, "endpoint": {tenant.AdmitEndpoint(tt.is), tt.endpoint}} {
			if (got.err == nil) != got.want || got.err != nil && !errors.Is(got.err, quota.ErrLimit) {
				t.Errorf("%s with %d there, limits %+v: got %v, want admitted: %t", what, tt.is, tt.limits, got.err, got.want)
			}
		}
	}
}

func TestParseSpan(t *testing.T) {
	if got, err := quota.ParseSpan("host"); got != quota.SpanHost || err != nil {
		t.Errorf("got %q, %v", got, err)
	}
	if _, err := quota.ParseSpan("hosts"); !errors.Is(err, quota.ErrSpan) {
		t.Errorf("got %v, want ErrSpan", err)
	}
	if _, err := quota.ParseSpan("host "); err == nil || errors.Is(err, quota.ErrSpan) {
		t.Errorf("got %v, want the error of a slip", err)
	}
}
