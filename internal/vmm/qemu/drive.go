package qemu

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"unnest.io/unnest/internal/vmm"
)

var _ vmm.Drive = (*VMM)(nil)

// CredentialDrive is the ID of the drive for credentials, on any controller.
const CredentialDrive = "unnest-credentials"

// mediumPrefix begins the names of our block nodes, which have at most 31 characters.
const mediumPrefix = "unnest-medium-"

// Medium returns the label of the medium in the drive.
func (v *VMM) Medium(ctx context.Context) (string, error) {
	d, ok, err := v.client.BlockDrive(ctx, CredentialDrive)
	label, ours := strings.CutPrefix(d.Medium, mediumPrefix)
	switch {
	case err != nil:
		return "", err
	case !ok:
		return "", fmt.Errorf("%w: start it with -device ide-cd,id=%s", vmm.ErrNoDrive, CredentialDrive)
	case d.Medium != "" && !ours:
		return "", fmt.Errorf("drive %s has another medium, %s: use another drive for that", CredentialDrive, d.Medium)
	}
	return label, nil
}

// InsertMedium gives QEMU the image as a descriptor, so QEMU needs no path to it and no
// right to open one. What a killed daemon has left is removed first.
func (v *VMM) InsertMedium(ctx context.Context, label string, image *os.File) error {
	if err := v.RemoveMedium(ctx); err != nil {
		return err
	}
	node := mediumPrefix + label
	err := markRefused(v.addMedium(ctx, node, image))
	if err == nil {
		err = markRefused(v.withOpenTray(ctx, "blockdev-insert-medium", map[string]any{"id": CredentialDrive, "node-name": node}))
	}
	if err != nil {
		return errors.Join(fmt.Errorf("insert medium: %w", err), v.RemoveMedium(ctx))
	}
	return nil
}

// addMedium makes a block node of an image. QEMU keeps a descriptor of its own.
func (v *VMM) addMedium(ctx context.Context, node string, image *os.File) error {
	fd, err := v.client.AddFD(ctx, image)
	if err != nil {
		return err
	}
	err = v.client.Execute(ctx, "blockdev-add", map[string]any{
		"driver": "file", "node-name": node, "filename": fmt.Sprintf("/dev/fdset/%d", fd.Set), "read-only": true, "locking": "off",
	}, nil)
	return errors.Join(err, v.client.RemoveFD(ctx, fd))
}

// RemoveMedium empties the drive, and deletes all media of ours.
func (v *VMM) RemoveMedium(ctx context.Context) error {
	label, err := v.Medium(ctx)
	if err == nil && label != "" {
		err = markRefused(v.withOpenTray(ctx, "blockdev-remove-medium", map[string]any{"id": CredentialDrive}))
	}
	if err != nil {
		return fmt.Errorf("remove medium: %w", err)
	}
	nodes, err := v.client.BlockNodes(ctx)
	for _, n := range nodes {
		if strings.HasPrefix(n, mediumPrefix) {
			err = errors.Join(err, markRefused(v.client.Execute(ctx, "blockdev-del", map[string]any{"node-name": n}, nil)))
		}
	}
	if err != nil {
		return fmt.Errorf("remove medium: %w", err)
	}
	return nil
}

// trayOpenings is how often the tray is opened for one command.
const trayOpenings = 5

// withOpenTray opens the tray, executes a command, and closes the tray. Firmware that looks for drives closes a tray,
// also between our commands: then it is opened again.
func (v *VMM) withOpenTray(ctx context.Context, command string, arguments map[string]any) error {
	for opened := 1; ; opened++ {
		err := v.client.OpenTray(ctx, CredentialDrive)
		if err == nil {
			err = v.client.Execute(ctx, command, arguments, nil)
		}
		if err == nil {
			return v.client.Execute(ctx, "blockdev-close-tray", map[string]any{"id": CredentialDrive}, nil)
		}
		if d, _, queryErr := v.client.BlockDrive(ctx, CredentialDrive); queryErr != nil || d.TrayOpen || opened == trayOpenings {
			return err
		}
	}
}
