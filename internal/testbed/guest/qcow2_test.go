package guest

import (
	"encoding/binary"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// A disk over a block device, which is the root disk of guests on a host that is itself a guest, is as
// large as that.
func TestOverlayOfBlockDevice(t *testing.T) {
	privileged(t)
	const size = 3 << 20
	file, disk := filepath.Join(t.TempDir(), "root.ext4"), filepath.Join(t.TempDir(), "disk.qcow2")
	if err := os.WriteFile(file, make([]byte, size), 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command("losetup", "--find", "--show", file).Output()
	if err != nil {
		t.Fatal(err)
	}
	device := strings.TrimSpace(string(out))
	t.Cleanup(func() {
		if err := exec.Command("losetup", "--detach", device).Run(); err != nil {
			t.Error(err)
		}
	})
	if err := writeOverlayDisk(disk, device); err != nil {
		t.Fatal(err)
	}
	content, err := os.ReadFile(disk)
	if err != nil {
		t.Fatal(err)
	}
	if got := binary.BigEndian.Uint64(content[24:]); got != size { // qcow2.txt: "size" is at byte 24
		t.Errorf("the disk has %d bytes, want %d", got, size)
	}
}
