package libvirt

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"unnest.io/unnest/internal/vmm"
	"unnest.io/unnest/internal/vmm/libvirt/libvirttest"
)

func (h *host) wantMedium(v *VMM, label string) {
	h.t.Helper()
	if got, err := v.Medium(h.t.Context()); err != nil || got != label {
		h.t.Errorf("medium is %q, error %v, want %q", got, err, label)
	}
	left, err := os.ReadDir(h.media)
	if err != nil || len(left) > 0 {
		h.t.Errorf("files left: %v, error %v", left, err)
	}
}

// image returns a file with the content, open for reading only.
func (h *host) image(content string) *os.File {
	h.t.Helper()
	path := filepath.Join(h.t.TempDir(), "image")
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		h.t.Fatal(err)
	}
	f, err := os.Open(path)
	if err != nil {
		h.t.Fatal(err)
	}
	h.t.Cleanup(func() { f.Close() })
	return f
}

func (h *host) insert(v *VMM, label string) {
	h.t.Helper()
	if err := v.InsertMedium(h.t.Context(), label, h.image(strings.Repeat(label, 1024))); err != nil {
		h.t.Fatal(err)
	}
}

// A medium is inserted, replaced and removed, on each bus, and no file of it is left. A new
// connection finds it.
func TestDrive(t *testing.T) {
	h := newHost(t)
	for _, bus := range []string{"sata", "scsi"} {
		h.daemon.Boot(libvirttest.Domain{Name: bus, Ports: 1, Drive: bus})
		v := h.dial(bus)
		if err := os.MkdirAll(h.media, 0o700); err != nil {
			t.Fatal(err)
		}
		h.wantMedium(v, "")
		if err := v.RemoveMedium(t.Context()); err != nil {
			t.Errorf("empty drive: %v", err)
		}
		h.insert(v, "0123456789abcdef")
		h.wantMedium(v, "0123456789abcdef")
		h.insert(v, "fedcba9876543210")
		h.wantMedium(h.dial(bus), "fedcba9876543210")
		if info, err := os.Stat(h.media); err != nil || info.Mode().Perm() != 0o711 {
			t.Errorf("directory %v, error %v, want mode 0711", info.Mode(), err)
		}
		if err := v.RemoveMedium(t.Context()); err != nil {
			t.Error(err)
		}
		h.wantMedium(v, "")
	}
}

// Firmware of a domain that starts over and over closes the tray at any time.
func TestDriveOfDomainThatResets(t *testing.T) {
	h := newHost(t)
	h.daemon.Boot(libvirttest.Domain{Name: "resets", Ports: 1, Drive: "sata"})
	v := h.dial("resets")
	for range 50 {
		h.daemon.Virsh("reset", "resets")
		h.insert(v, "0123456789abcdef")
		h.wantMedium(v, "0123456789abcdef")
		if err := v.RemoveMedium(t.Context()); err != nil {
			t.Fatal(err)
		}
		h.wantMedium(v, "")
	}
}

// Firmware that starts a SCSI controller closes the tray, and no event tells libvirt, which believes from then on that the
// tray is open.
func TestDriveThatResets(t *testing.T) {
	h := newHost(t)
	h.daemon.Boot(libvirttest.Domain{Name: "scsi", Ports: 1, Drive: "scsi"})
	v := h.dial("scsi")
	open := func() (libvirt, qemu bool) {
		return strings.Contains(h.daemon.Virsh("dumpxml", "scsi"), "tray='open'"),
			strings.Contains(h.daemon.Virsh("qemu-monitor-command", "scsi", `{"execute":"query-block"}`), `"tray_open":true`)
	}
	unknown := func(wait time.Duration) bool {
		h.daemon.Virsh("suspend", "scsi")
		h.daemon.Virsh("reset", "scsi")
		if err := v.client.OpenTray(t.Context(), v.domain, credentialAlias); err != nil {
			t.Fatal(err)
		}
		time.Sleep(wait) // for libvirt's look at the tray, because of the reset
		h.daemon.Virsh("resume", "scsi")
		for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
			if libvirt, qemu := open(); !qemu {
				return libvirt
			}
		}
		// SeaBIOS hangs now and then, in real mode without interrupts, when it is reset while it starts.
		t.Logf("the firmware did not close the tray: %s\n%s", h.daemon.Virsh("domstate", "--reason", "scsi"), h.daemon.Virsh("qemu-monitor-command", "scsi", "--hmp", "info registers"))
		return false
	}
	for wait := time.Second / 2; !unknown(wait); wait *= 2 {
		if wait > 20*time.Second {
			t.Fatal("the firmware closed no tray without libvirt's knowledge")
		}
	}
	h.insert(v, "0123456789abcdef")
	h.wantMedium(v, "0123456789abcdef")
	if libvirt, qemu := open(); libvirt || qemu {
		t.Errorf("the tray is open: libvirt says %v, QEMU %v", libvirt, qemu)
	}
}

// A domain without a drive, or with another medium in it, keeps what it has.
func TestNoDrive(t *testing.T) {
	h := newHost(t)
	h.daemon.Boot(libvirttest.Domain{Name: "bare", Ports: 1})
	v := h.dial("bare")
	_, err := v.Medium(t.Context())
	if !errors.Is(err, vmm.ErrNoDrive) || !strings.Contains(err.Error(), "<alias name='ua-unnest-credentials'/>") {
		t.Errorf("medium without a drive: got %v", err)
	}
	if err := v.InsertMedium(t.Context(), "0123", h.image("x")); !errors.Is(err, vmm.ErrNoDrive) {
		t.Errorf("insert without a drive: got %v", err)
	}
	other := filepath.Join(t.TempDir(), "other.iso")
	if err := os.WriteFile(other, make([]byte, 4096), 0o600); err != nil {
		t.Fatal(err)
	}
	h.daemon.Boot(libvirttest.Domain{Name: "other", Ports: 1, Drive: "sata", Medium: other})
	v = h.dial("other")
	for what, err := range map[string]error{
		"insert": v.InsertMedium(t.Context(), "0123", h.image("x")),
		"remove": v.RemoveMedium(t.Context()),
	} {
		if err == nil || !strings.Contains(err.Error(), "use another drive") {
			t.Errorf("%s: got %v", what, err)
		}
	}
	if text := h.daemon.Virsh("dumpxml", "other"); !strings.Contains(text, other) {
		t.Error("the other medium is gone")
	}
}
