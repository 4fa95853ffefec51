package guestrun

import (
	"context"
	"unnest.io/unnest/internal/hostd/contain"
	"unnest.io/unnest/internal/hostd/credentials"
	"unnest.io/unnest/internal/hostd/metrics"
	"unnest.io/unnest/internal/hostd/ports"
	"unnest.io/unnest/internal/hostd/record"
	"unnest.io/unnest/internal/hostd/segments"
	"unnest.io/unnest/internal/hostd/shares"
	"unnest.io/unnest/internal/hostd/turns"
	"unnest.io/unnest/internal/vmm"
)

// Host is what all guests of the host share.
type Host struct {
	StateDir string // for the boots of guests
	// Dial connects to a guest's VMM. The error wraps vmm.ErrNotRunning if that does not run.
	Dial     func(context.Context, record.Guest) (vmm.VMM, error)
	Metrics  *metrics.Metrics
	Panics   *contain.Panics
	Ports    *ports.Ports
	Turns    *turns.Turns // with which the tenants change ports
	Own      *ports.OwnNICs
	Segments *segments.Registry
	Shares   *shares.Registry
	// Offer says what has to be in the drive of a guest with a medium in it.
	Offer func(r record.Guest, label string) (credentials.Offer, error)
}
