package share

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
)

// exportSource names the file systems of exports in /proc/mounts. A colon and the owner
// follow, if they fit into what the kernel takes, maxSource bytes.
const (
	exportSource = "unnest-export"
	maxSource    = 255
)

func (e Export) source() string {
	s := exportSource + ":" + e.Owner
	if e.Owner == "" || len(s) > maxSource {
		return exportSource
	}
	return s
}

// owner returns the owner of the mount of an export, "" if it has no mark.
func (m mounted) owner() (owner string, ok bool) {
	name, owner, _ := strings.Cut(m.source, ":")
	return owner, m.kind == "tmpfs" && name == exportSource
}

// CloseOwned closes the exports of an owner, other than those in the directories keep.
// Volumes that are mounted there are unmounted, even while they are in use.
func CloseOwned(owner string, keep ...string) error {
	all, err := mounts()
	if err != nil {
		return fmt.Errorf("find exports of %s: %w", owner, err)
	}
	kept := map[string]bool{}
	for _, dir := range keep {
		if resolved, err := filepath.EvalSymlinks(dir); err == nil {
			dir = resolved
		}
		kept[dir] = true
	}
	for _, m := range slices.Backward(all) { // one may be in another
		if of, ok := m.owner(); ok && of != "" && of == owner && !kept[m.point] {
			err = errors.Join(err, Export{Dir: m.point}.Close())
		}
	}
	return err
}
