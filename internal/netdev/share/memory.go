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

// The bounds of shared memory in bytes. It is a power of two, as what a PCI device
// has of memory; a root port keeps room for MaxMemory.
const (
	MinMemory = 4 << 10
	MaxMemory = 64 << 20
)

// ErrSize is wrapped when memory cannot have the size.
var ErrSize = errors.New("size of shared memory is not possible")

// CheckSize returns an error, which wraps ErrSize, unless memory can have so many
// bytes.
func CheckSize(size uint64) error {
	if size < MinMemory || size > MaxMemory || bits.OnesCount64(size) != 1 {
		return fmt.Errorf("%w: %d bytes: want a power of two from %d to %d", ErrSize, size, MinMemory, MaxMemory)
	}
	return nil
}

// Region is the memory that a pod shares. It has no file system: it lives as long
// as a VMM has it, or somebody who holds File, and nothing of it stays.
type Region struct {
	Tenant string
	ID     ID
	Key    Digest // of the pod's key
	Size   int64  // bytes
	File   *os.File
}

// Create makes the region's memory, which is zero. Its size cannot be changed by
// whoever has it.
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

// A region's name says whose it is: "unnest;TENANT;ID;DIGEST". The kernel keeps at
// most 249 bytes of it and shows it wherever a process has the memory.
const regionPrefix = "unnest;"

func (r *Region) title() string {
	return regionPrefix + strings.Join([]string{r.Tenant, r.ID.String(), base64.RawURLEncoding.EncodeToString(r.Key[:])}, ";")
}

// parseTitle reads what title gives.
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

// FindRegions returns the regions that a VMM has mapped, open. One that it only has
// a descriptor of, it has been given for a device that is no more, or never was. The
// process is believed in what it calls its files: no guest controls that.
func FindRegions(pid int) (all []*Region, err error) {
	maps, err := os.ReadFile(fmt.Sprintf("/proc/%d/maps", pid))
	if err != nil {
		return nil, fmt.Errorf("look for shared memory: %w", err)
	}
	dir := fmt.Sprintf("/proc/%d/fd", pid)
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("look for shared memory: %w", err)
	}
	left := mappedRegions(string(maps))
	for _, e := range entries {
		path := filepath.Join(dir, e.Name())
		var s unix.Stat_t
		if unix.Stat(path, &s) != nil { // closed since, or no file
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

// How the kernel writes the path of a memory file.
const (
	memfdPrefix = "/memfd:"
	memfdSuffix = " (deleted)"
)

// mappedRegions reads proc_pid_maps(5): the titles of memory files by their inodes.
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

// open opens the memory by a path that leads to it.
func (r *Region) open(path string) (err error) {
	if r.File, err = os.OpenFile(path, os.O_RDWR, 0); err != nil {
		return fmt.Errorf("take over shared memory: %w", err)
	}
	info, err := r.File.Stat()
	if err != nil {
		return errors.Join(fmt.Errorf("take over shared memory: %w", err), r.File.Close())
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
