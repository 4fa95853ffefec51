package guestrun

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	"unnest.io/unnest/internal/hostapi/identity"
	"unnest.io/unnest/internal/hostd/hotplug"
	"unnest.io/unnest/internal/hostd/record"
)

const (
	// bootGrace is how long requests of a boot that has ended are refused: longer than a request lasts.
	bootGrace = 2 * time.Minute
	// bootInterval is the least time between two boots, each of which writes a file. A microVM boots in 0.1 s, and tries again.
	bootInterval = time.Second
)

// Why a request of a boot is refused.
var (
	ErrOldBoot  = errors.New("the guest has booted again since: this request was of the boot before")
	ErrManyBoot = errors.New("the guest names another boot than a second ago: try again")
)

// booted is called for each request, with the boot that the request is of, "" if that cannot be told. The first request of
// another boot ends the attachments of the boot before: the VMM may have reported the reset while there was no daemon.
// What a request attaches without a boot must not end with another one, so then the boot is forgotten.
func (g *Guest) booted(ctx context.Context, id string, attaches bool) error {
	switch ended, was := g.ended[id]; {
	case id == "":
		if attaches && !g.bootless {
			g.forgetBoot()
		}
		return nil
	case was && time.Since(ended) < bootGrace:
		return fmt.Errorf("boot %s: %w", id, ErrOldBoot)
	case id == g.boot.ID:
		return nil
	}
	known, err := record.ReadBoot(g.host.StateDir, g.Record.Name)
	if err != nil {
		g.log.Warn("tell boots of the guest apart: this request counts as the first", "error", err)
	}
	g.boot = known
	now := time.Now()
	switch {
	case id == known.ID:
		return nil
	case known.ID != "" && now.Sub(known.Since).Abs() < bootInterval:
		return fmt.Errorf("boot %s: %w", id, ErrManyBoot)
	case known.ID != "" && g.ended[known.ID].IsZero(): // else its record could not be removed
		g.log.Info("the guest has booted again", "boot", id, "before", known.ID, "attachments", g.nics.count())
		g.endBoot()
		g.reset(ctx)
	}
	next := record.Boot{ID: id, Since: now}
	switch err := record.WriteBoot(g.host.StateDir, g.Record.Name, next); {
	case err != nil && attaches:
		return err // else the next daemon would end what this boot attaches
	case err != nil:
		if !g.unkept { // once: each request tries again
			g.unkept = true
			g.log.Warn("keep the guest's boot: until that succeeds the guest can attach nothing", "error", err)
		}
		return nil
	}
	g.boot, g.bootless, g.unkept = next, false, false
	return nil
}

// bootOf returns the boot that a request is of, "" if that cannot be told: a clone of the guest has another boot.
func (g *Guest) bootOf(ctx context.Context) string {
	if !g.isMachine(g.machine.Load(), identity.Machine(ctx)) {
		return ""
	}
	return identity.Boot(ctx)
}

// endBoot forgets the boot of a guest that was reset, and refuses its late requests.
func (g *Guest) endBoot() {
	known := g.boot
	if known.ID == "" {
		known, _ = record.ReadBoot(g.host.StateDir, g.Record.Name) // one that cannot be read has no requests to tell
	}
	maps.DeleteFunc(g.ended, func(_ string, at time.Time) bool { return time.Since(at) > bootGrace })
	if g.ended == nil {
		g.ended = map[string]time.Time{}
	}
	if known.ID != "" {
		g.ended[known.ID] = time.Now()
	}
	g.forgetBoot()
}

// forgetBoot removes the record of the boot. The next request that names a boot counts as the first, and ends no attachments.
func (g *Guest) forgetBoot() {
	if err := record.RemoveBoot(g.host.StateDir, g.Record.Name); err != nil {
		g.log.Warn("forget the guest's boot", "error", err)
		return
	}
	g.boot, g.bootless = record.Boot{}, true
}

// reset ends the attachments of a guest that was reset, and its ephemeral volumes.
func (g *Guest) reset(ctx context.Context) {
	g.awake.Store(false)
	g.nics.trunk.removeAll(ctx)
	if err := g.host.Segments.RestoreOffloadsOf(g.Record.Name); err != nil {
		g.log.Warn("restore offloads of segments", "error", err)
	}
	g.shares.feed(ctx, hotplug.GuestReset{})
	g.nics.feed(ctx, hotplug.GuestReset{})
	g.shares.endEphemeral(ctx) // last: a reset tells the NICs apart that were asked for before
}
