// Package thishost runs commands and containers on this host in the user space of the guests, and removes the
// work directories that dead runs have left.
package thishost

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"unnest.io/unnest/internal/measure/machines/cgroup"
	"unnest.io/unnest/internal/measure/machines/machine"
	"unnest.io/unnest/internal/testbed/image"
	"unnest.io/unnest/internal/testbed/lab"
	"unnest.io/unnest/internal/testbed/place"
)

// Host is this host with the user space of our guests, so that every level runs the
// same tools: the guests' root directory, read-only, in a mount namespace, a process
// namespace and the network namespace of the lab. Everything in it ends with the
// process that holds the namespaces. The command line of that process names the lab's
// directory.
type Host struct {
	lab    *lab.Lab
	netns  string   // path of the network namespace
	work   string   // on this host, /mnt inside
	lock   *os.File // of work
	holder *exec.Cmd
	ended  chan struct{} // closed when the holder has ended
	Inside place.Within
}

// hostScript makes the mounts and holds the namespaces, as the first process of its
// process namespace: all others end with it. The overlay discards what CNI plugins
// write below /var/lib. chroot would not be enough: a container's commands enter its
// mount namespace, and runc in a chroot leaves the host's root there.
//
//go:embed host.sh
var hostScript string

// New enters the root directory of a recipe in a network namespace of the lab. The name
// distinguishes the hosts of a lab.
func New(ctx context.Context, l *lab.Lab, netns, name string, b image.Builder, r image.Recipe) (_ *Host, err error) {
	root, err := b.Root(ctx, r)
	if err != nil {
		return nil, err
	}
	h := &Host{lab: l, netns: netns, work: filepath.Join(b.Cache, WorkPrefix+l.ID()+name), ended: make(chan struct{})}
	if h.lock, err = ClaimWork(h.work); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			h.End()
			err = errors.Join(err, h.Clean())
		}
	}()
	if err := h.hold(root); err != nil {
		return nil, fmt.Errorf("enter %s: %w", root, err)
	}
	namespaces := "/proc/" + strconv.Itoa(h.holder.Process.Pid) + "/ns/"
	h.Inside = place.Within{
		Place: place.Local{NetNS: netns},
		Enter: []string{"nsenter", "--mount=" + namespaces + "mnt", "--pid=" + namespaces + "pid_for_children"},
		Env: []string{
			"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL=C", "HOME=/tmp",
			"NERDCTL_TOML=/mnt/nerdctl.toml",
		},
		Name: "this host",
	}
	return h, h.putBinaries(ctx, b.Files)
}

// hold starts the process that holds the namespaces, and waits for their mounts.
func (h *Host) hold(root string) error {
	// unshare makes the mounts private.
	h.holder = exec.Command("unshare", "--mount", "--pid", "--fork", "--kill-child",
		"bash", "-c", hostScript, "unnest-host", root, h.work, h.lab.Dir)
	h.holder.SysProcAttr = &unix.SysProcAttr{Setsid: true}
	ready, err := h.holder.StdoutPipe()
	if err != nil {
		return err
	}
	var stderr strings.Builder
	h.holder.Stderr = &stderr
	if err := lab.Do(h.netns, h.holder.Start); err != nil {
		h.holder = nil
		return err
	}
	printed, _ := io.ReadAll(io.LimitReader(ready, int64(len("ready\n"))))
	go func() {
		defer close(h.ended)
		_ = h.holder.Wait() // it is killed
	}()
	if len(printed) > 0 {
		return nil
	}
	<-h.ended
	return errors.New(strings.TrimSpace(stderr.String()))
}

// Machine is the host as a machine of configurations. Its servers listen on one
// address, because a UDP server on a host with several addresses could answer from
// another one.
func (h *Host) Machine() *machine.Machine {
	return &machine.Machine{
		Place: h.Inside, Address: lab.TenantGateway, Listen: lab.TenantGateway, Work: "/mnt/work",
		StartContainer: h.container, StartEngine: h.startEngine,
	}
}

// putBinaries writes our binaries that guests have below /usr/local.
func (h *Host) putBinaries(ctx context.Context, binaries map[string]string) error {
	for target, path := range binaries {
		if !strings.HasPrefix(target, "/usr/local/") {
			continue
		}
		f, err := os.Open(path)
		if err != nil {
			return err
		}
		err = h.Inside.Put(ctx, target, 0o755, f)
		if err := errors.Join(err, f.Close()); err != nil {
			return err
		}
	}
	return nil
}

//go:embed engine.sh
var engineScript string

// startEngine starts a containerd of this run, which ends with the namespaces.
func (h *Host) startEngine(ctx context.Context) error {
	return place.Run(ctx, h.Inside, "bash", "-c", engineScript, "start", "/run"+h.lab.Dir+"/containerd.sock")
}

//go:embed container.sh
var containerScript string

// container starts a container whose root is an overlay over the host's user space.
func (h *Host) container(ctx context.Context, name string, options ...string) (place.Place, error) {
	args := append([]string{"bash", "-c", containerScript, "container", name, cgroup.OfLab(h.lab.ID()), "--name", name}, options...)
	if err := place.Run(ctx, h.Inside, args...); err != nil {
		return nil, err
	}
	return place.Container{Place: h.Inside, Engine: machine.Nerdctl, Name: name}, nil
}

// endTimeout is how long everything inside may take to end.
const endTimeout = 5 * time.Second

// End ends the holder, and with it everything inside.
func (h *Host) End() {
	if h.holder == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), endTimeout)
	defer cancel()
	_ = place.Run(ctx, h.Inside, "kill", "1") // this command is killed, too
	select {
	case <-h.ended:
	case <-ctx.Done():
		_ = h.holder.Process.Kill()
		<-h.ended
	}
}

// Clean removes the work directory. Every process that writes to it must have ended.
func (h *Host) Clean() error { return errors.Join(removeWork(h.work), h.lock.Close()) }

// WorkPrefix begins the names of the runs' work directories in the cache.
const WorkPrefix = "work-"

// ClaimWork makes a work directory, or takes over the one that a dead run left. This
// process owns it as long as the file is open.
func ClaimWork(dir string) (*os.File, error) {
	for {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return nil, fmt.Errorf("make work directory: %w", err)
		}
		f, err := lockWork(dir)
		if err == nil || !errors.Is(err, fs.ErrNotExist) { // another run has removed it in between
			return f, err
		}
	}
}

// lockWork locks a work directory. The error wraps EWOULDBLOCK when its owner lives, and
// fs.ErrNotExist when the directory is gone.
func lockWork(dir string) (*os.File, error) {
	f, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if err == nil {
		err = sameFile(f, dir)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("lock %s: %w", dir, err), f.Close())
	}
	return f, nil
}

// sameFile returns an error that wraps fs.ErrNotExist when the path of f is gone or is
// that of another file now.
func sameFile(f *os.File, path string) error {
	opened, err := f.Stat()
	if err != nil {
		return err
	}
	found, err := os.Stat(path)
	if err == nil && !os.SameFile(opened, found) {
		err = fs.ErrNotExist
	}
	return err
}

// CleanWork removes the work directories in the cache that dead runs left, with their
// control groups, and returns the paths of the directories. With dryRun it only lists
// them. The directories of live runs stay.
func CleanWork(cache string, dryRun bool) (removed []string, err error) {
	left, err := filepath.Glob(filepath.Join(cache, WorkPrefix+"*"))
	for _, dir := range left {
		lock, lockErr := lockWork(dir)
		if errors.Is(lockErr, unix.EWOULDBLOCK) || errors.Is(lockErr, fs.ErrNotExist) {
			continue
		}
		if lockErr == nil {
			removed = append(removed, dir)
			if !dryRun {
				lockErr = removeWork(dir)
			}
			lockErr = errors.Join(lockErr, lock.Close())
		}
		err = errors.Join(err, lockErr)
	}
	return removed, err
}

// removeWork removes a work directory, after the control groups of its containers.
func removeWork(dir string) error {
	name := strings.TrimPrefix(filepath.Base(dir), WorkPrefix)
	return errors.Join(cgroup.Remove(cgroup.OfLab(name)), os.RemoveAll(dir))
}
