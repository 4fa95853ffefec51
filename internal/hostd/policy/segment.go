package policy

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// MaxEndpoints is how many endpoints a Hostlo segment can have.
const MaxEndpoints = 16

// How a segment passes frames on.
const (
	SegmentUnicast = "unicast" // to the fraction that they are for
	SegmentPlain   = "plain"   // to all fractions (Bacou et al. 2019, §4)
)

// Segments says which Hostlo segments the guests of a tenant may have.
type Segments struct {
	Modes []string `yaml:"modes,omitempty"` // allowed, the first if a request says none; empty: all, unicast first
	Span  string   `yaml:"span,omitempty"`  // what a segment reaches over: SpanHost, which empty is too
}

// SpanHost is the only span of a segment: the VMs of one physical host.
const SpanHost = "host"

// Reasons to refuse a segment, to be told apart with errors.Is.
var (
	ErrSegmentMode = errors.New("mode of the segment is not allowed")
	ErrSpan        = errors.New("span of the segment is not possible")
)

// ParseSpan accepts SpanHost. Other errors than that of a slip wrap ErrSpan.
func ParseSpan(text string) (string, error) {
	switch text {
	case SpanHost:
		return text, nil
	case "hosts":
		return "", fmt.Errorf("%w: want host, got hosts: a segment is a device of one physical host, on which all VMs of its pod have to be (Bacou et al. 2019, §5.3.1)", ErrSpan)
	}
	return "", fmt.Errorf("want host, got %q", text)
}

func parseSegmentMode(text string) (string, error) {
	if text != SegmentUnicast && text != SegmentPlain {
		return "", fmt.Errorf("want %s or %s, got %q", SegmentUnicast, SegmentPlain, text)
	}
	return text, nil
}

// SegmentModes are the modes that the tenant's segments may have, the usual first.
func (t Tenant) SegmentModes() []string {
	if len(t.Segments.Modes) == 0 {
		return []string{SegmentUnicast, SegmentPlain}
	}
	return t.Segments.Modes
}

// SegmentModeFor returns the mode of a new segment for which asked was asked, "" for
// none. The error wraps ErrSegmentMode.
func (t Tenant) SegmentModeFor(asked string) (string, error) {
	modes := t.SegmentModes()
	if asked == "" {
		return modes[0], nil
	}
	if !slices.Contains(modes, asked) {
		return "", fmt.Errorf("%w: %.20q: want %s", ErrSegmentMode, asked, strings.Join(modes, " or "))
	}
	return asked, nil
}

// AdmitSegment returns an error, which wraps ErrLimit, when a tenant with so many
// segments may not have one more.
func (t Tenant) AdmitSegment(segments int) error {
	if l := t.Limits.Segments; l > 0 && segments >= l {
		return fmt.Errorf("%w: tenant %s has %d segments of at most %d: remove pods", ErrLimit, t.Name, segments, l)
	}
	return nil
}

// AdmitEndpoint returns an error, which wraps ErrLimit, when a segment with so many
// endpoints may not have one more.
func (t Tenant) AdmitEndpoint(endpoints int) error {
	most := t.Limits.Endpoints
	if most == 0 {
		most = MaxEndpoints
	}
	if endpoints >= most {
		return fmt.Errorf("%w: the segment has %d endpoints of at most %d: spread the pod over fewer VMs", ErrLimit, endpoints, most)
	}
	return nil
}
