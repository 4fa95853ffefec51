package qemu

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"unnest.io/unnest/internal/vmm"
)

// image returns a file in memory, open for reading only.
func image(t *testing.T, content string) *os.File {
	t.Helper()
	fd, err := unix.MemfdCreate("image", unix.MFD_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	f := os.NewFile(uintptr(fd), "image")
	defer f.Close()
	if _, err := f.WriteString(content); err != nil {
		t.Fatal(err)
	}
	read, err := os.Open(fmt.Sprintf("/proc/self/fd/%d", fd))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { read.Close() })
	return read
}

func (m *machine) wantMedium(v *VMM, label string) {
	m.t.Helper()
	if got, err := v.Medium(m.t.Context()); err != nil || got != label {
		m.t.Errorf("medium is %q, error %v, want %q", got, err, label)
	}
	nodes, err := v.client.BlockNodes(m.t.Context())
	ours := slices.DeleteFunc(nodes, func(n string) bool { return !strings.HasPrefix(n, mediumPrefix) })
	if err != nil || (len(ours) == 1) != (label != "") || len(ours) > 1 {
		m.t.Errorf("media are %q, error %v, want %q", ours, err, label)
	}
}

// A medium is inserted, replaced and removed, on both kinds of drives. QEMU keeps it when
// its sender is gone, and keeps no medium that is replaced.
func TestDrive(t *testing.T) {
	for _, devices := range [][]string{
		{"ide-cd,id=unnest-credentials"},
		{"virtio-scsi-pci,id=scsi", "scsi-cd,bus=scsi.0,id=unnest-credentials"},
	} {
		m := boot(t, devices...)
		if err := m.owner.Execute(t.Context(), "cont", nil, nil); err != nil { // paused, QEMU keeps descriptors
			t.Fatal(err)
		}
		v := m.dial()
		m.wantMedium(v, "")
		if err := v.RemoveMedium(t.Context()); err != nil {
			t.Errorf("empty drive: %v", err)
		}
		for _, label := range []string{"a1", "b2"} {
			f := image(t, strings.Repeat(label, 1024))
			if err := v.InsertMedium(t.Context(), label, f); err != nil {
				t.Fatal(err)
			}
			if err := f.Close(); err != nil {
				t.Error(err)
			}
			m.wantMedium(v, label)
		}
		_ = v.Close()
		v = m.dial()
		m.wantMedium(v, "b2") // what a daemon that starts finds
		if n := m.descriptors("/memfd:image (deleted)"); n != 1 {
			t.Errorf("QEMU has %d media", n)
		}
		if err := v.RemoveMedium(t.Context()); err != nil {
			t.Error(err)
		}
		m.wantMedium(v, "")
		if n := m.descriptors("/memfd:image (deleted)"); n != 0 {
			t.Errorf("QEMU has %d media of an empty drive", n)
		}
		m.kill()
	}
}

// Firmware of a guest that starts over and over closes the tray at any time.
func TestDriveOfGuestThatResets(t *testing.T) {
	m := boot(t, "ide-cd,id=unnest-credentials")
	if err := m.owner.Execute(t.Context(), "cont", nil, nil); err != nil {
		t.Fatal(err)
	}
	v := m.dial()
	f := image(t, strings.Repeat("a1", 1024))
	for range 200 {
		if err := m.owner.Execute(t.Context(), "system_reset", nil, nil); err != nil {
			t.Fatal(err)
		}
		if err := v.InsertMedium(t.Context(), "a1", f); err != nil {
			t.Fatal(err)
		}
		if err := v.RemoveMedium(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	m.kill()
}

// A daemon that is killed while it hands a file over leaves no descriptor after the next has
// connected. What others have added stays.
func TestLeftDescriptors(t *testing.T) {
	m := boot(t, "ide-cd,id=unnest-credentials")
	if err := m.owner.Execute(t.Context(), "cont", nil, nil); err != nil { // paused, QEMU keeps descriptors
		t.Fatal(err)
	}
	v, f := m.dial(), image(t, "left")
	if _, err := v.client.AddFD(t.Context(), f); err != nil {
		t.Fatal(err)
	}
	if err := m.owner.SendFD(t.Context(), "other", f); err != nil {
		t.Fatal(err)
	}
	v.Close()
	m.dial()
	if n := m.descriptors("/memfd:image (deleted)"); n != 1 {
		t.Errorf("QEMU has %d descriptors of the file, want the other's", n)
	}
}

// The guest cannot write the medium, and a daemon that was killed at any step is followed
// by one that repairs the drive.
func TestDriveIsInterrupted(t *testing.T) {
	m := boot(t, "ide-cd,id=unnest-credentials")
	v := m.dial()
	ctx, f := t.Context(), image(t, strings.Repeat("x", 2048))
	steps := map[string]func() error{
		"node":      func() error { return v.addMedium(ctx, mediumPrefix+"left", f) },
		"open tray": func() error { return v.client.OpenTray(ctx, CredentialDrive) },
		"both": func() error {
			return errors.Join(v.addMedium(ctx, mediumPrefix+"left", f), v.client.OpenTray(ctx, CredentialDrive))
		},
		"tray not closed": func() error {
			return errors.Join(v.InsertMedium(ctx, "left", f), v.client.OpenTray(ctx, CredentialDrive))
		},
	}
	for name, step := range steps {
		if err := step(); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if err := v.InsertMedium(ctx, "next", f); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		m.wantMedium(v, "next")
		if err := v.RemoveMedium(ctx); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := v.InsertMedium(ctx, "again", f); err != nil {
		t.Fatal(err)
	}
	var all []struct{ Inserted struct{ RO bool } }
	if err := v.client.Execute(ctx, "query-block", nil, &all); err != nil || len(all) != 1 || !all[0].Inserted.RO {
		t.Errorf("drives are %+v, error %v: want one that is read-only", all, err)
	}
}

// A guest without drive, and a drive with a medium of the operator, are left alone.
func TestOtherDrives(t *testing.T) {
	m := boot(t)
	v := m.dial()
	if _, err := v.Medium(t.Context()); !errors.Is(err, vmm.ErrNoDrive) || !strings.Contains(err.Error(), "-device ide-cd") {
		t.Errorf("no drive: got %v", err)
	}
	m.kill()
	iso := t.TempDir() + "/iso"
	if err := os.WriteFile(iso, bytes.Repeat([]byte("i"), 2048), 0o600); err != nil {
		t.Fatal(err)
	}
	m = boot(t, "-blockdev driver=file,node-name=iso,read-only=on,filename="+iso, "ide-cd,drive=iso,id=unnest-credentials")
	v = m.dial()
	for name, f := range map[string]func(context.Context) error{
		"remove": v.RemoveMedium,
		"insert": func(ctx context.Context) error { return v.InsertMedium(ctx, "a", image(t, "a")) },
	} {
		if err := f(t.Context()); err == nil || !strings.Contains(err.Error(), "another medium") {
			t.Errorf("%s: got %v", name, err)
		}
	}
}
