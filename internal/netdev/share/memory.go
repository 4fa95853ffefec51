package share

import (
	"encoding/base64"
	"errors"
	"fmt"
	"math/bits"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// The bounds of shared memory in bytes. It has to be a power of two, like all memory
// of PCI devices; a root port reserves MaxMemory.
const (
	MinMemory = 4 << 10
	MaxMemory = 64 << 20
)

// ErrSize is wrapped when memory cannot have a size.
var ErrSize = errors.New("invalid size of shared memory")

// CheckSize returns an error that wraps ErrSize unless shared memory can have size
// bytes.
func CheckSize(size uint64) error {
	if size < MinMemory || size > MaxMemory || bits.OnesCount64(size) != 1 {
		return fmt.Errorf("%w: %d bytes: want a power of two from %d to %d", ErrSize, size, MinMemory, MaxMemory)
	}
	return nil
}

// Region is memory that a pod shares. It exists as long as a VMM maps it or File is
// open.
type Region struct {
	Tenant string
	ID     ID
	Key    Digest // of the pod's key
	Size   int64  // bytes
	File   *os.File
}

// Create makes the region's memory, filled with zeros. No process can change its
// size.
func (r *Region) Create() error {
	if err := errors.Join(r.ID.Validate(), CheckSize(uint64(r.Size))); err != nil {
		return err
	}
	fd, err := unix.MemfdCreate(r.title(), unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return fmt.Errorf("make shared memory %s: %w", r.ID, err)
	}
	r.File = os.NewFile(uintptr(fd), r.title())
	if err = r.File.Truncate(r.Size); err == nil {
		_, err = unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, unix.F_SEAL_GROW|unix.F_SEAL_SHRINK|unix.F_SEAL_SEAL)
	}
	if err != nil {
		return errors.Join(fmt.Errorf("make shared memory %s: %w", r.ID, err), r.File.Close())
	}
	return nil
}

// The name of a memory file is "unnest;TENANT;ID;DIGEST". The kernel keeps up to 249
// bytes of it, and shows it in /proc of every process that uses the memory.
const regionPrefix = "unnest;"

func (r *Region) title() string {
	return regionPrefix + strings.Join([]string{r.Tenant, r.ID.String(), base64.RawURLEncoding.EncodeToString(r.Key[:])}, ";")
}

// parseTitle is the inverse of title.
func parseTitle(title string) (r Region, ok bool) {
	fields := strings.Split(title, ";")
	if len(fields) != 4 || fields[0]+";" != regionPrefix {
		return r, false
	}
	id, ok := ParseID(fields[2])
	key, err := base64.RawURLEncoding.DecodeString(fields[3])
	if !ok || err != nil || len(key) != len(r.Key) {
		return r, false
	}
	r = Region{Tenant: fields[1], ID: id, Key: Digest(key)}
	return r, r.title() == title
}

// FindRegions opens the regions that a VMM has mapped. It ignores regions of which the
// VMM only has a descriptor: their device is gone. It trusts the names of the VMM's
// memory files, which no guest controls.
func FindRegions(pid int) (all []*Region, err error) {
	maps, err := os.ReadFile(fmt.Sprintf("/proc/%d/maps", pid))
	if err != nil {
		return nil, fmt.Errorf("find shared memory: %w", err)
	}
	dir := fmt.Sprintf("/proc/%d/fd", pid)
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("find shared memory: %w", err)
	}
	left := mappedRegions(string(maps))
	for _, e := range entries {
		path := filepath.Join(dir, e.Name())
		var s unix.Stat_t
		if unix.Stat(path, &s) != nil { // closed meanwhile, or not a file
			continue
		}
		title, mapped := left[s.Ino]
		target, err := os.Readlink(path)
		r, ok := parseTitle(title)
		if err != nil || !mapped || !ok || target != memfdPrefix+title+memfdSuffix {
			continue
		}
		if err := r.open(path); err != nil {
			return nil, errors.Join(err, closeAll(all))
		}
		delete(left, s.Ino)
		all = append(all, &r)
	}
	return all, nil
}

// The kernel puts the name of a memory file between these.
const (
	memfdPrefix = "/memfd:"
	memfdSuffix = " (deleted)"
)

// mappedRegions parses proc_pid_maps(5) into the titles of memory files by inode.
func mappedRegions(maps string) map[uint64]string {
	all := map[uint64]string{}
	for line := range strings.Lines(maps) {
		fields := strings.Fields(line) // range, access, offset, device, inode, path
		_, path, ok := strings.Cut(strings.TrimSuffix(line, "\n"), memfdPrefix+regionPrefix)
		if !ok || len(fields) < 6 {
			continue
		}
		if inode, err := strconv.ParseUint(fields[4], 10, 64); err == nil {
			all[inode] = regionPrefix + strings.TrimSuffix(path, memfdSuffix)
		}
	}
	return all
}

// open opens the memory at a path in /proc.
func (r *Region) open(path string) (err error) {
	if r.File, err = os.OpenFile(path, os.O_RDWR, 0); err != nil {
		return fmt.Errorf("open shared memory: %w", err)
	}
	info, err := r.File.Stat()
	if err != nil {
		return errors.Join(fmt.Errorf("open shared memory: %w", err), r.File.Close())
	}
	r.Size = info.Size()
	return nil
}

func closeAll(regions []*Region) (err error) {
	for _, r := range regions {
		err = errors.Join(err, r.File.Close())
	}
	return err
}
