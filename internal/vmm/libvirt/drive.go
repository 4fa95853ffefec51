package libvirt

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"text/template"

	"unnest.io/unnest/internal/vmm"
	"unnest.io/unnest/internal/vmm/libvirt/rpc"
)

var _ vmm.Drive = (*VMM)(nil)

// credentialAlias is the alias of the CD-ROM drive for credentials, on any bus.
const credentialAlias = userAlias + "unnest-credentials"

// mediumPrefix begins the names of our images.
const mediumPrefix = "unnest-medium-"

// Medium returns the label of the medium in the drive. It is in the name of the image,
// which libvirt remembers.
func (v *VMM) Medium(ctx context.Context) (string, error) {
	_, label, err := v.drive(ctx)
	return label, err
}

// drive returns the drive for credentials, and the label of the medium in it.
func (v *VMM) drive(ctx context.Context) (d deviceXML, label string, err error) {
	devices, err := v.xmlDevices(ctx)
	if err != nil {
		return d, "", err
	}
	d, ok := credentialDrive(devices)
	if !ok {
		return d, "", fmt.Errorf("%w: add <disk type='file' device='cdrom'> with <alias name='%s'/>", vmm.ErrNoDrive, credentialAlias)
	}
	if d.Source.File == "" {
		return d, "", nil
	}
	label, ours := strings.CutPrefix(filepath.Base(d.Source.File), mediumPrefix)
	if !ours {
		return d, "", fmt.Errorf("drive %s has another medium, %s: use another drive for that", credentialAlias, d.Source.File)
	}
	return d, label, nil
}

// InsertMedium copies the image to a file, because libvirt needs a path. It removes the file
// when QEMU has opened it.
func (v *VMM) InsertMedium(ctx context.Context, label string, image *os.File) (err error) {
	d, _, err := v.drive(ctx)
	if err != nil {
		return err
	}
	path := filepath.Join(v.media, mediumPrefix+label)
	if err := copyImage(path, image); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.Remove(path)) }()
	if err := v.changeMedium(ctx, d, path); err != nil {
		return fmt.Errorf("insert medium: %w", err)
	}
	return nil
}

// RemoveMedium empties the drive.
func (v *VMM) RemoveMedium(ctx context.Context) error {
	d, label, err := v.drive(ctx)
	if err == nil && label != "" {
		err = v.changeMedium(ctx, d, "")
	}
	if err != nil {
		return fmt.Errorf("remove medium: %w", err)
	}
	return nil
}

// How often the tray is opened for one change of the medium: first by libvirt, then by QEMU.
const (
	trayOpenings = 5 // by both
	byLibvirt    = 2
)

// changeMedium replaces the medium of a drive by the image at a path, or by none, even if the
// guest has locked the tray. Firmware that looks for drives closes a tray, also between
// libvirt's commands: then libvirt is asked again. A reset of a drive closes its tray without an event. libvirt then
// believes that the tray is open and does not open it, so libvirt is asked to have QEMU open it.
func (v *VMM) changeMedium(ctx context.Context, d deviceXML, path string) error {
	text, err := describeDrive(d, path)
	if err != nil {
		return err
	}
	for opened := 1; ; opened++ {
		if err = v.client.ChangeMedium(ctx, v.domain, text); !isTrayClosed(err) || opened == trayOpenings {
			break
		}
		if opened < byLibvirt {
			continue
		}
		if err := v.client.OpenTray(ctx, v.domain, credentialAlias); err != nil {
			return markRefused(err)
		}
	}
	return markRefused(err)
}

// isTrayClosed recognizes QEMU's refusal to change a medium (qmp_blockdev_insert_medium and
// qmp_blockdev_remove_medium of block/qapi-sysemu.c). libvirt has no error code for it.
func isTrayClosed(err error) bool {
	e, ok := errors.AsType[*rpc.Error](err)
	return ok && strings.Contains(e.Message, "Tray of") && strings.Contains(e.Message, "is not open")
}

// copyImage makes a file that only its owner may read. libvirt gives it to QEMU's user.
func copyImage(path string, image *os.File) (err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("make medium: %w", err)
		}
	}()
	// QEMU's user needs to pass through the directory, and to list nothing.
	dir := filepath.Dir(path)
	if err := errors.Join(os.MkdirAll(dir, 0o711), os.Chmod(dir, 0o711)); err != nil { // whatever the umask
		return err
	}
	info, err := image.Stat()
	if err != nil {
		return err
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(f, io.NewSectionReader(image, 0, info.Size()))
	if err = errors.Join(err, f.Close()); err != nil {
		return errors.Join(err, os.Remove(path))
	}
	return nil
}

func credentialDrive(devices []deviceXML) (deviceXML, bool) {
	for _, d := range devices {
		if d.XMLName.Local == "disk" && d.Device == "cdrom" && d.Alias.Name == credentialAlias {
			return d, true
		}
	}
	return deviceXML{}, false
}

var driveXML = template.Must(template.New("drive").Funcs(template.FuncMap{"xml": escapeXML}).Parse(
	`<disk type="file" device="cdrom"><driver name="qemu" type="raw"/>{{with .Path}}<source file="{{xml .}}"/>{{end}}` +
		`<target dev="{{xml .Dev}}" bus="{{xml .Bus}}"/><readonly/><alias name="{{xml .Alias}}"/></disk>`))

// describeDrive returns libvirt's description of a drive with another medium, or without one.
func describeDrive(d deviceXML, path string) (string, error) {
	var b strings.Builder
	err := driveXML.Execute(&b, struct{ Path, Dev, Bus, Alias string }{path, d.Target.Dev, d.Target.Bus, d.Alias.Name})
	if err != nil {
		return "", fmt.Errorf("describe drive %s: %w", d.Alias.Name, err)
	}
	return b.String(), nil
}
