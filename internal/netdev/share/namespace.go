package share

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"unnest.io/unnest/internal/netdev/thread"
)

// Namespace is a mount namespace, as a file such as /proc/1/ns/mnt. "" is that of this
// process. A VMM sees what is mounted in its own: a daemon that systemd confines has
// another one, from which no mount gets out.
type Namespace string

// Do calls f in the namespace, on a thread of its own. Goroutines that f starts are not in
// it. Files that f opens stay in the namespace.
func (n Namespace) Do(f func() error) error {
	if n == "" {
		return f()
	}
	return thread.Do(func() error {
		if err := n.enter(); err != nil {
			return err
		}
		return f()
	})
}

// enter moves the calling thread, which shares its current directory with the others
// until then.
func (n Namespace) enter() error {
	file, err := os.Open(string(n))
	if err == nil {
		defer file.Close()
		if err = unix.Unshare(unix.CLONE_FS); err == nil {
			err = unix.Setns(int(file.Fd()), unix.CLONE_NEWNS)
		}
	}
	if errors.Is(err, unix.EPERM) || errors.Is(err, unix.EACCES) {
		err = fmt.Errorf("%w: give the process CAP_SYS_ADMIN, CAP_SYS_CHROOT and CAP_SYS_PTRACE", err)
	}
	if err != nil {
		return fmt.Errorf("enter mount namespace %s: %w", n, err)
	}
	return nil
}
