package tap

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Descriptors lists the descriptors that a process has of TAPs called name, in all
// namespaces. The name of a deleted TAP is "".
func Descriptors(pid int, name string) ([]int, error) {
	directory := filepath.Join("/proc", strconv.Itoa(pid), "fdinfo")
	entries, err := os.ReadDir(directory)
	if err != nil && !gone(err) {
		return nil, fmt.Errorf("list descriptors of process %d: %w", pid, err)
	}
	var found []int
	for _, e := range entries {
		info, err := os.ReadFile(filepath.Join(directory, e.Name()))
		if err != nil && !gone(err) {
			return nil, fmt.Errorf("inspect descriptor %s of process %d: %w", e.Name(), pid, err)
		}
		fd, err := strconv.Atoi(e.Name())
		if err == nil && strings.Contains(string(info), "iff:\t"+name+"\n") { // tun_chr_show_fdinfo
			found = append(found, fd)
		}
	}
	return found, nil
}

// Duplicate returns a duplicate of a process's descriptor, or -1 if the process has ended or has closed it.
func Duplicate(pid, fd int) (int, error) {
	process, err := unix.PidfdOpen(pid, 0)
	if err == nil {
		defer os.NewFile(uintptr(process), "process").Close()
		fd, err = unix.PidfdGetfd(process, fd, 0)
	}
	switch {
	case errors.Is(err, unix.EBADF) || errors.Is(err, unix.ESRCH):
		return -1, nil
	case err != nil:
		return -1, fmt.Errorf("take descriptor %d of process %d: %w", fd, pid, err)
	}
	return fd, nil
}

// gone reports whether an error means that a process has ended or has closed the
// descriptor.
func gone(err error) bool { return errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ESRCH) }

// openTime is more time than a process takes from opening a descriptor to making its TAP.
const openTime = 5 * time.Millisecond

// Revive attaches a VMM's descriptors of deleted TAPs to new TAPs, and returns how many. A new
// TAP is down and on no bridge, so it passes no frame. It disappears when the VMM closes the
// descriptor. A descriptor without a TAP reports an error for ever: QEMU's main loop spins, and
// QEMU 10 exits when the guest resets the NIC, also before the guest gives
// the NIC up ("TUNSETVNETHDRSZ ioctl() failed"). Revive returns 0 for a process that has ended.
func Revive(pid int) (revived int, err error) {
	fds, err := Descriptors(pid, "")
	if err != nil || len(fds) == 0 {
		return 0, err
	}
	time.Sleep(openTime)
	again, err := Descriptors(pid, "")
	if err != nil {
		return 0, err
	}
	for _, fd := range fds {
		if !slices.Contains(again, fd) {
			continue
		}
		is, reviveErr := revive(pid, fd)
		if is {
			revived++
		}
		err = errors.Join(err, reviveErr)
	}
	if err != nil {
		err = fmt.Errorf("revive TAPs of process %d: %w", pid, err)
	}
	return revived, err
}

// revive makes a TAP for a descriptor of a process, unless the descriptor is closed or has a TAP.
func revive(pid, fd int) (bool, error) {
	queue, err := Duplicate(pid, fd)
	if queue < 0 || err != nil {
		return false, err
	}
	const name = "unnest-lost%d" // the kernel numbers it
	err = setInterface(queue, name, unix.IFF_MULTI_QUEUE)
	if errors.Is(err, unix.EBUSY) { // the kernel returns it once for a further queue of a TAP (seen with Linux 6.18)
		err = setInterface(queue, name, unix.IFF_MULTI_QUEUE)
	}
	revived := err == nil
	if errors.Is(err, unix.EEXIST) {
		err = nil
	}
	return revived, errors.Join(err, unix.Close(queue))
}
