package e2e

import (
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"unnest.io/unnest/internal/hostd/record"
)

// onHost returns a command that runs args in the network namespace of the host.
func (s *rounds) onHost(args ...string) []string {
	return append([]string{"nsenter", "--net=" + s.fleet.Lab.HostNS()}, args...)
}

// inventory lists everything that segments could leave, by place.
func (s *rounds) inventory() map[string]string {
	s.t.Helper()
	at := map[string]string{
		"the host's links":         secondWords(mustRun(s.t, s.onHost("ip", "-o", "link")...)),
		"the host's qdiscs":        mustRun(s.t, s.onHost("tc", "qdisc")...),
		"the host's state":         s.stateFiles(),
		"the daemon's descriptors": descriptors(s.t, s.daemonPID()),
	}
	for _, m := range s.in {
		at["links of "+m.Name] = m.run("ls /sys/class/net; ip -o link | grep alias || true")
		at["namespaces of "+m.Name] = m.run("ip netns list")
		at["qdiscs of "+m.Name] = m.run("tc qdisc")
		at["pending DELs of "+m.Name] = m.run("find /run/unnest -path '*pending*' -type f 2>/dev/null || true")
		at["descriptors of "+m.Name] = descriptors(s.t, m.PID)
	}
	return at
}

// secondWords returns the second word of each line, sorted.
func secondWords(lines string) string {
	var all []string
	for line := range strings.Lines(lines) {
		if fields := strings.Fields(line); len(fields) > 1 {
			all = append(all, fields[1])
		}
	}
	slices.Sort(all)
	return strings.Join(all, " ")
}

// stateFiles returns the paths of all files of the lab.
func (s *rounds) stateFiles() string {
	s.t.Helper()
	var all []string
	s.check(filepath.WalkDir(s.fleet.Lab.Dir, func(path string, _ fs.DirEntry, err error) error {
		if path != record.BootPath(s.fleet.Lab.Dir, filepath.Base(filepath.Dir(path))) { // there is one while the guest runs, or none
			all = append(all, path)
		}
		return err
	}))
	return strings.Join(all, " ")
}

// number matches what differs between descriptors of the same kind.
var number = regexp.MustCompile(`\d+`)

// descriptors returns the number of descriptors of a process, by kind.
func descriptors(t *testing.T, pid int) string {
	t.Helper()
	dir := fmt.Sprintf("/proc/%d/fd", pid)
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	kinds := map[string]int{}
	for _, e := range entries {
		if target, err := os.Readlink(filepath.Join(dir, e.Name())); err == nil { // else it was closed meanwhile
			kinds[number.ReplaceAllString(target, "N")]++
		}
	}
	var all []string
	for _, kind := range slices.Sorted(maps.Keys(kinds)) {
		all = append(all, fmt.Sprintf("%s: %d", kind, kinds[kind]))
	}
	return strings.Join(all, ", ")
}

// nothingLeft fails unless the host and all guests become as before within retryLimit.
func (s *rounds) nothingLeft(t *testing.T, before map[string]string) {
	for begin := time.Now(); ; time.Sleep(time.Second) {
		left := s.left(before)
		if len(left) == 0 {
			return
		}
		if time.Since(begin) > retryLimit {
			t.Errorf("left after %v:\n%s", retryLimit, strings.Join(left, "\n"))
			return
		}
	}
}

// left returns the differences from before.
func (s *rounds) left(before map[string]string) (left []string) {
	if err := s.finishPending(); err != nil {
		left = append(left, err.Error())
	}
	now := s.inventory()
	for _, where := range slices.Sorted(maps.Keys(before)) {
		if now[where] != before[where] {
			left = append(left, fmt.Sprintf("%s: %q, before: %q", where, now[where], before[where]))
		}
	}
	status := s.status()
	for _, segment := range status.Segments {
		left = append(left, fmt.Sprintf("segment %+v", segment))
	}
	for _, g := range status.Guests {
		if g.Error != "" || g.Attachments != 0 || g.SlotsQuarantined != 0 || g.SlotsFree != g.Slots {
			left = append(left, fmt.Sprintf("guest %+v", g))
		}
	}
	return left
}
