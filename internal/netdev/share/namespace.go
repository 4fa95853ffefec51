package share

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"

	"golang.org/x/sys/unix"
)

// Namespace is a mount namespace, as a file such as /proc/1/ns/mnt. "" is that of this
// process. A VMM sees what is mounted in its own: a daemon that systemd confines has
// another one, from which no mount gets out.
type Namespace string

// Do calls f in the namespace, on a thread of its own. Goroutines that f starts are not in
// it. Files that f opens stay in the namespace.
func (n Namespace) Do(f func() error) (err error) {
	if n == "" {
		return f()
	}
	var bug any
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		defer func() {
			if p := recover(); p != nil { // it is the caller's to contain
				bug = fmt.Sprintf("%v\n%s", p, debug.Stack())
			}
		}()
		if err = n.enter(); err == nil {
			err = f()
		}
	}()
	<-ended
	if bug != nil {
		panic(bug)
	}
	return err
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
