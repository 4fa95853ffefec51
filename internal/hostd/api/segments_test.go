package api

import (
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"

	"unnest.io/unnest/internal/hostapi/hostdpb"
	"unnest.io/unnest/internal/hostd/segments"
)

const testKey = "0123456789abcdef"

// Requests that are accepted and refused.
func TestSegmentSpec(t *testing.T) {
	good := func() *hostdpb.SegmentSpec {
		return &hostdpb.SegmentSpec{Pod: "web", Key: testKey, Network: "pods", Mode: hostdpb.SegmentMode_SEGMENT_MODE_PLAIN}
	}
	if w, err := segmentSpec(good()); err != nil || w != (segments.Spec{Pod: "web", Key: testKey, Mode: "plain", Network: "pods"}) {
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
		_, err := segmentSpec(s)
		if err == nil || grpcstatus.Code(coded(err)) != codes.InvalidArgument || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want InvalidArgument with %q", err, want)
		}
	}
	if _, err := segmentSpec(nil); grpcstatus.Code(err) != codes.InvalidArgument {
		t.Errorf("no segment: got %v", err)
	}
}
