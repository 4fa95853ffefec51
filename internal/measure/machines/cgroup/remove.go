package cgroup

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

// OfLab is the control group of the containers of the lab with an ID.
func OfLab(lab string) string { return "unnest-" + lab }

// groupPatience is how long processes may take to leave their control group after they
// are killed.
const groupPatience = 2 * time.Second

// Remove removes a control group with its subgroups from all hierarchies: one in
// version 2, several in version 1.
func Remove(name string) error {
	var err error
	for _, pattern := range []string{"/sys/fs/cgroup/", "/sys/fs/cgroup/*/"} {
		found, globErr := filepath.Glob(pattern + name)
		err = errors.Join(err, globErr)
		for _, group := range found {
			err = errors.Join(err, removeGroup(group))
		}
	}
	return err
}

func removeGroup(path string) error {
	below, err := os.ReadDir(path)
	for _, e := range below {
		if e.IsDir() {
			err = errors.Join(err, removeGroup(filepath.Join(path, e.Name())))
		}
	}
	if err != nil {
		return err
	}
	for end := time.Now().Add(groupPatience); ; time.Sleep(20 * time.Millisecond) {
		err := unix.Rmdir(path)
		if err == nil || errors.Is(err, unix.ENOENT) {
			return nil
		}
		if !errors.Is(err, unix.EBUSY) || time.Now().After(end) {
			return fmt.Errorf("remove control group %s: %w", path, err)
		}
	}
}
