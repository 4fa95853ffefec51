package vmm

import (
	"context"
	"errors"
	"os"
)

// ErrNoDrive is wrapped when the guest was started without a drive for credentials.
var ErrNoDrive = errors.New("the guest has no drive for credentials")

// Drive is a VMM whose guest may have a CD-ROM drive for its credentials. The host changes
// the medium whatever the guest does, and the guest cannot write it.
type Drive interface {
	// Medium returns the label of the medium in the drive, "" if the drive is empty.
	Medium(ctx context.Context) (label string, err error)
	// InsertMedium replaces the medium in the drive by an image: up to 16 letters and
	// digits name it. The caller closes its own copy of the image, which must be open for
	// reading only.
	InsertMedium(ctx context.Context, label string, image *os.File) error
	// RemoveMedium empties the drive.
	RemoveMedium(ctx context.Context) error
}
