package record

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"unnest.io/unnest/internal/hostd/statefile"
)

// Boot is which boot of a guest's kernel has called last. All attachments of the guest's pods are of that boot.
type Boot struct {
	ID    string    `json:"id"`    // as in /proc/sys/kernel/random/boot_id; empty: none has said it
	Since time.Time `json:"since"` // when its first request came
}

// BootPath returns the path of the file with a guest's boot.
func BootPath(stateDir, guest string) string {
	return filepath.Join(filepath.Dir(Path(stateDir, guest)), "boot.json")
}

// ReadBoot returns the boot of a guest; the zero Boot if none has called.
func ReadBoot(stateDir, guest string) (b Boot, err error) {
	content, err := os.ReadFile(BootPath(stateDir, guest))
	if errors.Is(err, fs.ErrNotExist) {
		return b, nil
	}
	if err == nil {
		err = json.Unmarshal(content, &b)
	}
	if err != nil {
		return Boot{}, fmt.Errorf("read boot of guest %s in %s: %w", guest, BootPath(stateDir, guest), err)
	}
	return b, nil
}

// WriteBoot writes the boot of a guest.
func WriteBoot(stateDir, guest string, b Boot) error {
	return statefile.Write(BootPath(stateDir, guest), b)
}

// RemoveBoot removes the boot of a guest, if there is one.
func RemoveBoot(stateDir, guest string) error {
	if err := os.Remove(BootPath(stateDir, guest)); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}
