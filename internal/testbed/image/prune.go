package image

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/procfs"
)

// Entry is an image, a snapshot, an unpacked Debian or a file for images in the cache.
type Entry struct {
	Path  string
	Size  int64 // bytes on the disk
	Used  time.Time
	InUse bool // a running process names it, or it was used within keepAtLeast
}

// The limits of the cache. Each version of our binaries makes images of its own, of half a
// gigabyte, and a snapshot has a third of one. A process may use an image some time after
// it has asked for it.
const (
	keepFor     = 30 * 24 * time.Hour
	keepAtLeast = time.Hour
	keepRoot    = 24 * time.Hour // of hack/host: no process that runs in it names it
	keepGiB     = 20             // unless $UNNEST_CACHE_GIB says otherwise
)

// buildPrefixes begin the names of what is made with imageLock, and of files for images, which are downloaded or made of these.
var buildPrefixes = []string{imagePrefix, "debian-", "file-"}

// entryPrefixes begin the names of entries. hack/host makes host-, and place.Local makes .put-. No lock says
// who makes these, so a half-made one is an entry, too.
var entryPrefixes = append([]string{snapshotPrefix, "host-", ".put-"}, buildPrefixes...)

// Entries lists what the directory cache has.
func Entries(ctx context.Context, cache string) (all []Entry, err error) {
	running, err := arguments()
	if err != nil {
		return nil, err
	}
	for _, prefix := range entryPrefixes {
		found, err := filepath.Glob(filepath.Join(cache, prefix+"*"))
		if err != nil {
			return nil, err
		}
		for _, dir := range found {
			if err := ctx.Err(); err != nil {
				return nil, context.Cause(ctx)
			}
			info, err := os.Stat(dir)
			if errors.Is(err, fs.ErrNotExist) || strings.HasSuffix(dir, partSuffix) && prefix != "host-" && prefix != ".put-" {
				continue
			}
			if err != nil {
				return nil, err
			}
			size, err := entrySize(dir, info.ModTime())
			if err != nil {
				return nil, err
			}
			keep := keepAtLeast
			if prefix == "host-" {
				keep = keepRoot
			}
			used := slices.ContainsFunc(running, func(argument string) bool { return strings.Contains(argument, dir+"/") })
			all = append(all, Entry{dir, size, info.ModTime(), used || time.Since(info.ModTime()) < keep})
		}
	}
	return all, nil
}

// arguments returns those of all processes but this one.
func arguments() (all []string, err error) {
	processes, err := procfs.AllProcs()
	for _, p := range processes {
		if p.PID != os.Getpid() {
			line, _ := p.CmdLine() // it fails if the process has ended
			all = append(all, line...)
		}
	}
	return all, err
}

// entrySize returns the disk space of an entry, and keeps it in a file, because Debian has
// tens of thousands of files. Content does not change.
func entrySize(dir string, used time.Time) (int64, error) {
	file := filepath.Join(dir, "size")
	if content, err := os.ReadFile(file); err == nil {
		if size, err := strconv.ParseInt(string(content), 10, 64); err == nil {
			return size, nil
		}
	}
	size, err := diskUsage(dir)
	if errors.Is(err, fs.ErrNotExist) || strings.HasSuffix(dir, partSuffix) { // another process removes it, or may still make it
		return size, nil
	}
	if os.WriteFile(file, []byte(strconv.FormatInt(size, 10)), 0o644) == nil {
		err = errors.Join(err, os.Chtimes(dir, used, used))
	}
	return size, err
}

// excess returns the entries to remove from a cache with a limit in bytes: those unused
// within keepFor, and the least recently used ones until the rest fits.
func excess(all []Entry, limit int64, now time.Time) (remove []Entry) {
	var sum int64
	for _, e := range all {
		sum += e.Size
	}
	all = slices.SortedFunc(slices.Values(all), func(a, b Entry) int { return cmp.Or(a.Used.Compare(b.Used), strings.Compare(a.Path, b.Path)) })
	for _, e := range all {
		if !e.InUse && (sum > limit || now.Sub(e.Used) > keepFor) {
			remove = append(remove, e)
			sum -= e.Size
		}
	}
	return remove
}

// Limit is the largest size of the cache in bytes.
func Limit() (int64, error) {
	text := os.Getenv("UNNEST_CACHE_GIB")
	if text == "" {
		return keepGiB << 30, nil
	}
	n, err := strconv.ParseInt(text, 10, 32)
	if err != nil || n < 0 {
		return 0, fmt.Errorf("UNNEST_CACHE_GIB=%s: want a whole number of GiB", text)
	}
	return n << 30, nil
}

// Prune removes from the directory cache what killed processes left half made, and entries
// until it is within limit bytes, and returns those. With dryRun it only lists them.
// Entries in use stay.
func Prune(ctx context.Context, cache string, limit int64, dryRun bool) (removed []Entry, err error) {
	all, err := Entries(ctx, cache)
	if err != nil {
		return nil, fmt.Errorf("clean the cache: %w", err)
	}
	removed = excess(all, limit, time.Now())
	for _, e := range removed {
		if !dryRun {
			err = errors.Join(err, vanish(e.Path))
		}
	}
	parts, partsErr := (&Builder{Cache: cache}).removeAbandoned(dryRun)
	if err = errors.Join(err, partsErr); err != nil {
		err = fmt.Errorf("clean the cache: %w", err)
	}
	return append(removed, parts...), err
}

// vanish removes a directory so that no other process sees a part of it.
func vanish(dir string) error {
	gone := dir + ".gone" + partSuffix
	err := os.RemoveAll(gone) // of a removal that was killed
	if err == nil {
		err = os.Rename(dir, gone)
	}
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return errors.Join(err, os.RemoveAll(gone))
}

// removeAbandoned removes, or lists, what killed processes left half made, unless another process
// makes something now.
func (b *Builder) removeAbandoned(dryRun bool) (all []Entry, err error) {
	if _, err := os.Stat(b.Cache); err != nil {
		return nil, nil
	}
	for lock, prefixes := range map[cacheLock][]string{imageLock: buildPrefixes, snapshotLock: {snapshotPrefix}} {
		ctx, cancel := context.WithCancel(context.Background())
		cancel() // do not wait
		if unlock, lockErr := b.lock(ctx, lock); lockErr == nil {
			parts, partsErr := removeParts(b.Cache, dryRun, prefixes...)
			all, err = append(all, parts...), errors.Join(err, partsErr)
			unlock()
		}
	}
	return all, err
}

// removeParts removes, or lists, what was left half made of entries. Their lock must be held.
func removeParts(cache string, dryRun bool, prefixes ...string) (all []Entry, err error) {
	for _, prefix := range prefixes {
		parts, globErr := filepath.Glob(filepath.Join(cache, prefix+"*"+partSuffix))
		err = errors.Join(err, globErr)
		for _, dir := range parts {
			info, partErr := os.Stat(dir)
			if errors.Is(partErr, fs.ErrNotExist) {
				continue // another process has removed it
			}
			size, _ := diskUsage(dir)
			if partErr == nil && !dryRun {
				partErr = os.RemoveAll(dir)
			}
			if err = errors.Join(err, partErr); partErr == nil {
				all = append(all, Entry{Path: dir, Size: size, Used: info.ModTime()})
			}
		}
	}
	return all, err
}

// prune removes what exceeds the limit of the cache, and what was left half made of the entries whose lock is held, by the
// prefixes of their names. It reports what it has removed, and what it cannot remove.
func (b *Builder) prune(ctx context.Context, held ...string) error {
	limit, err := Limit()
	if err != nil {
		return err
	}
	removed, err := Prune(ctx, b.Cache, limit, false)
	for _, e := range removed {
		b.report("removed %s from the cache, used last on %s", filepath.Base(e.Path), e.Used.Format(time.DateTime))
	}
	_, partsErr := removeParts(b.Cache, false, held...)
	if err = errors.Join(err, partsErr); err != nil && ctx.Err() == nil {
		b.report("%v", err)
	}
	return context.Cause(ctx)
}
