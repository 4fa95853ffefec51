package libnetwork

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"unnest.io/unnest/internal/cni/attachment"
)

// directory has files in JSON, which only root may read.
type directory string

func (d directory) path(name string) string { return filepath.Join(string(d), name+".json") }

func (d directory) write(name string, value any) error {
	return attachment.WriteFile(d.path(name), value)
}

// read reads a file. The error wraps fs.ErrNotExist if there is none.
func (d directory) read(name string, into any) error {
	content, err := os.ReadFile(d.path(name))
	if err != nil {
		return err
	}
	if err := json.Unmarshal(content, into); err != nil {
		return fmt.Errorf("read %s: %w", d.path(name), err)
	}
	return nil
}

func (d directory) remove(name string) error {
	if err := os.Remove(d.path(name)); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// names lists the files.
func (d directory) names() (all []string, err error) {
	files, err := os.ReadDir(string(d))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	for _, f := range files {
		if name, ok := strings.CutSuffix(f.Name(), ".json"); ok {
			all = append(all, name)
		}
	}
	return all, err
}

// load takes over the NICs that an earlier driver has kept. The sweep looks for one whose file cannot be read.
func (d *driver) load() error {
	names, err := d.nicFiles.names()
	for _, name := range names {
		var n nic
		if readErr := d.nicFiles.read(name, &n); readErr != nil || n.Owner != name {
			d.log.Error("the file of a NIC is damaged", "file", d.nicFiles.path(name), "error", readErr)
			continue
		}
		d.nics[n.Owner] = n
	}
	return err
}

// Udev's control socket is there while udev runs, and its file of a link as soon as it has named that.
const (
	udevControl = "/run/udev/control"
	udevLinks   = "/run/udev/data/n"
	// udevTime is how long udev may take on a busy guest.
	udevTime = 10 * time.Second
)

// settle waits until udev has named a link.
func settle(ctx context.Context, index int) error {
	if _, err := os.Stat(udevControl); err != nil {
		return nil
	}
	file := fmt.Sprint(udevLinks, index)
	for end := time.Now().Add(udevTime); time.Now().Before(end); {
		if _, err := os.Stat(file); err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(10 * time.Millisecond):
		}
	}
	return nil // udev does not handle network links here
}
