package podnic

import (
	"fmt"
	"os"
	"path/filepath"
)

// SetSysctl sets a file below /proc/sys/net, which belongs to the calling thread's
// network namespace. It does not write a value that is right, as the file may be
// read-only. The error wraps fs.ErrNotExist when the kernel lacks the file.
func SetSysctl(name, value string) error {
	path := filepath.Join("/proc/sys/net", name)
	have, err := os.ReadFile(path)
	if err == nil && string(have) != value+"\n" {
		err = os.WriteFile(path, []byte(value), 0)
	}
	if err != nil {
		return fmt.Errorf("set sysctl net/%s to %s: %w", name, value, err)
	}
	return nil
}
