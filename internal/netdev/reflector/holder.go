package reflector

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// device is a TAP in a network namespace.
type device struct {
	name string
	ns   uint64 // inode
}

// takeFrom returns a descriptor of the queue that a process has of a TAP, or -1 when
// it has none or has ended. It prefers an attached queue: a detached one is what an
// interrupted recovery or Leave has left.
func takeFrom(pid int, d device) (queue, error) {
	fd, err := unix.PidfdOpen(pid, 0)
	if errors.Is(err, unix.ESRCH) {
		return -1, nil
	}
	if err != nil {
		return -1, fmt.Errorf("open process %d: %w", pid, err)
	}
	process := os.NewFile(uintptr(fd), strconv.Itoa(pid))
	defer process.Close()
	fds, err := tunDescriptors(pid, d.name)
	if err != nil {
		return -1, err
	}
	for _, attached := range []bool{true, false} {
		for _, fd := range fds {
			if q, err := duplicate(process, fd, d, attached); q >= 0 || err != nil {
				return q, err
			}
		}
	}
	return -1, nil
}

// tunDescriptors lists the descriptors that a process has of TAPs with a name, in all
// namespaces.
func tunDescriptors(pid int, name string) ([]int, error) {
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

// gone reports whether an error means that a process has ended or has closed the
// descriptor.
func gone(err error) bool { return errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ESRCH) }

// duplicate duplicates a process's descriptor if it is a queue of the device that is
// attached or not, as given. Else it returns -1.
func duplicate(process *os.File, fd int, d device, attached bool) (queue, error) {
	copied, err := unix.PidfdGetfd(int(process.Fd()), fd, 0)
	if errors.Is(err, unix.EBADF) || errors.Is(err, unix.ESRCH) {
		return -1, nil // closed meanwhile
	}
	if err != nil {
		return -1, fmt.Errorf("take descriptor %d: %w", fd, err)
	}
	q := queue(copied)
	name, is, err := q.device()
	if err == nil && name == d.name && is == attached {
		var ns uint64
		if ns, err = q.inode(); err == nil && ns == d.ns {
			return q, nil
		}
	}
	if errors.Is(err, unix.EBADFD) {
		err = nil // not a TAP any more
	}
	return -1, errors.Join(err, q.close())
}
