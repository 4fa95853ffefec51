package attachment

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
)

// WriteFile writes value to path as JSON that only root may read, completely or not at all. It makes the
// directory. After a failure of the machine, too, the file is complete or as before. A process that is killed may leave a file whose name begins with ".new-".
func WriteFile(path string, value any) error {
	content, err := json.Marshal(value)
	if err != nil {
		return err
	}
	dir := filepath.Dir(path)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	f, err := os.CreateTemp(dir, ".new-")
	if err != nil {
		return err
	}
	_, err = f.Write(content)
	if err = errors.Join(err, f.Sync(), f.Close()); err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		_ = os.Remove(f.Name())
	}
	return err
}
