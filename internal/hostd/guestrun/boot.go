package guestrun

import (
	"context"
	"errors"
	"fmt"
	"time"

	"unnest/internal/hostd/hotplug"
	"unnest/internal/hostd/record"
)

const (
	// bootGrace is how long requests of the boot before are refused: longer than a request lasts.
	bootGrace = 2 * time.Minute
	// bootInterval is the least time between two boots, each of which writes a file. A microVM boots in 0.1 s, and tries again.
	bootInterval = time.Second
)

// Why a request of a boot is refused.
var (
	ErrOldBoot  = errors.New("the guest has booted again since: this request was of the boot before")
	ErrManyBoot = errors.New("the guest names another boot than a second ago: try again")
)

// booted is called for each request, with the boot that the request is of, "" if it does not say it. The first request of
// another boot ends the attachments of the boot before: the VMM may have reported the reset while there was no daemon.
func (g *Guest) booted(ctx context.Context, id string) error {
	if id == "" || id == g.boot.ID {
		return nil
	}
	known, err := record.ReadBoot(g.host.StateDir, g.Record.Name)
	if err != nil {
		g.log.Warn("tell boots of the guest apart: this request counts as the first", "error", err)
	}
	g.boot = known
	now := time.Now()
	switch age := now.Sub(known.Since).Abs(); {
	case id == known.ID:
		return nil
	case id == known.Before && age < bootGrace:
		return fmt.Errorf("boot %s: %w", id, ErrOldBoot)
	case known.ID != "" && age < bootInterval:
		return fmt.Errorf("boot %s: %w", id, ErrManyBoot)
	case known.ID != "":
		g.log.Info("the guest has booted again", "boot", id, "before", known.ID, "attachments", g.nics.count())
		g.reset(ctx)
	}
	next := record.Boot{ID: id, Before: known.ID, Since: now}
	if err := record.WriteBoot(g.host.StateDir, g.Record.Name, next); err != nil {
		return err // else the next daemon would end what this boot attaches
	}
	g.boot = next
	return nil
}

// reset ends the attachments of a guest that was reset.
func (g *Guest) reset(ctx context.Context) {
	g.awake.Store(false)
	g.nics.trunk.removeAll()
	if err := g.host.Segments.RestoreOffloadsOf(g.Record.Name); err != nil {
		g.log.Warn("restore offloads of segments", "error", err)
	}
	g.shares.feed(ctx, hotplug.GuestReset{})
	g.nics.feed(ctx, hotplug.GuestReset{})
}
