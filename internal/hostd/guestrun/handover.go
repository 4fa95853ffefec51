package guestrun

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"
	"unnest.io/unnest/internal/vmm"

	"unnest.io/unnest/internal/hostd/credentials"

	"golang.org/x/sys/unix"
)

// offerInterval is the time between two looks at the medium of a guest.
const offerInterval = 10 * time.Second

// handOver brings the medium of the guest in line, now and from time to time. Of a guest that
// gets no credentials it only removes what it had before.
func (g *Guest) handOver(ctx context.Context) {
	if g.Record.Credentials != "" {
		defer g.after(ctx, offerInterval, g.handOver)
	}
	bound, cancel := context.WithTimeout(ctx, vmmTime)
	defer cancel()
	err := g.changeMedium(bound)
	text := ""
	if err != nil {
		text = err.Error()
	}
	if text != "" && text != g.offerFailed {
		g.log.Error("hand over credentials: enroll the guest by hand, or repair the cause", "error", err)
	}
	g.offerFailed = text
}

func (g *Guest) changeMedium(ctx context.Context) error {
	drive, ok := g.vmm.(vmm.Drive)
	present, err := "", error(nil)
	if ok {
		present, err = drive.Medium(ctx)
	} else {
		err = vmm.ErrNoDrive
	}
	if err != nil && g.Record.Credentials == "" {
		return nil
	}
	if err != nil {
		return err
	}
	o, err := g.host.Offer(g.Record, present)
	switch {
	case err != nil || o.Keep:
		return err
	case o.Image == nil && present == "":
		return nil
	case o.Image == nil:
		g.log.Info("remove the medium with credentials")
		return drive.RemoveMedium(ctx)
	}
	return g.insert(ctx, drive, o)
}

// insert inserts the medium of an offer, or withdraws the offer.
func (g *Guest) insert(ctx context.Context, drive vmm.Drive, o credentials.Offer) error {
	image, err := memoryFile(o.Image)
	if err == nil {
		err = drive.InsertMedium(ctx, o.Label(), image)
		err = errors.Join(err, image.Close())
	}
	if err != nil {
		return errors.Join(err, o.Withdraw())
	}
	g.log.Info("hand over credentials", "serial", o.Certificate.Serial, "expires", o.Certificate.Expires)
	return nil
}

// endOffer removes the medium of a guest that was removed. Its certificate is refused whether
// that succeeds or not.
func (g *Guest) endOffer(ctx context.Context) {
	drive, ok := g.vmm.(vmm.Drive)
	if !ok || g.Record.Credentials == "" || !errors.Is(context.Cause(ctx), ErrRemoved) {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), vmmTime)
	defer cancel()
	if err := drive.RemoveMedium(ctx); err != nil && !errors.Is(err, vmm.ErrNoDrive) {
		g.log.Warn("remove the medium with credentials", "error", err)
	}
}

// memoryFile returns a file in memory that can be read only, also by those who get it.
func memoryFile(content []byte) (*os.File, error) {
	fd, err := unix.MemfdCreate("unnest-credentials", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return nil, fmt.Errorf("make medium: %w", err)
	}
	f := os.NewFile(uintptr(fd), "medium")
	defer f.Close()
	if _, err = f.Write(content); err == nil {
		err = f.Chmod(0o600)
	}
	if err == nil {
		_, err = unix.FcntlInt(f.Fd(), unix.F_ADD_SEALS, unix.F_SEAL_SEAL|unix.F_SEAL_WRITE|unix.F_SEAL_GROW|unix.F_SEAL_SHRINK)
	}
	if err != nil {
		return nil, fmt.Errorf("make medium: %w", err)
	}
	return os.Open(fmt.Sprintf("/proc/self/fd/%d", f.Fd()))
}
