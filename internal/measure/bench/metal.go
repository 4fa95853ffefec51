package bench

import (
	"context"
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

	"unnest/internal/testbed/guest"
	"unnest/internal/testbed/lab"
	"unnest/internal/testbed/place"
)

// metal is this host with the user space of our guests, so that every level runs the
// same programs: their root directory, read-only, in a mount namespace, a process
// namespace and the lab's network namespace. Nothing of it outlives the process that
// holds the namespaces, whose command line has the lab's directory.
type metal struct {
	lab    *lab.Lab
	work   string   // on this host, /mnt inside
	lock   *os.File // says that work is in use
	holder *exec.Cmd
	ended  chan struct{} // closed when the holder has, with all that ran inside
	inside place.Within
}

// metalScript makes the namespaces' mounts and then keeps them, as the first process
// of its process namespace: all others end with it. What CNI plugins note below
// /var/lib is forgotten with the rest.
const metalScript = `set -e
root=$1 work=$2
mount --bind "$root" "$root"
mount -o remount,bind,ro "$root"
mount --rbind /sys "$root/sys"
mount --rbind /dev "$root/dev"
mount -t proc proc "$root/proc"
mount -t tmpfs -o mode=1777 tmp "$root/tmp"
mount -t tmpfs run "$root/run"
mount -t tmpfs -o mode=0700 home "$root/root"
mount --bind "$work" "$root/mnt"
mount -t tmpfs -o mode=0755 programs "$root/usr/local"
mkdir -p "$root/run/lib/upper" "$root/run/lib/work"
mount -t overlay overlay -o "lowerdir=$root/var/lib,upperdir=$root/run/lib/upper,workdir=$root/run/lib/work" "$root/var/lib"
trap exit TERM
echo ready
sleep infinity &
wait $!
`

// newMetal enters the root directory that the image's recipe gives.
func newMetal(ctx context.Context, l *lab.Lab, b guest.Builder, r guest.Recipe) (_ *metal, err error) {
	root, err := b.Root(ctx, r)
	if err != nil {
		return nil, err
	}
	m := &metal{lab: l, work: filepath.Join(b.Cache, workPrefix+l.Name), ended: make(chan struct{})}
	if m.lock, err = claimWork(m.work); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			m.end()
			err = errors.Join(err, m.clean())
		}
	}()
	if err := m.hold(root); err != nil {
		return nil, fmt.Errorf("enter %s: %w", root, err)
	}
	namespaces := "/proc/" + strconv.Itoa(m.holder.Process.Pid) + "/ns/"
	m.inside = place.Within{
		Place: place.Local{NetNS: l.HostNS()},
		Enter: []string{"nsenter", "--mount=" + namespaces + "mnt", "--pid=" + namespaces + "pid_for_children", "chroot", root},
		Env: []string{
			"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL=C", "HOME=/tmp",
			"NERDCTL_TOML=/mnt/nerdctl.toml",
		},
		Name: "this host",
	}
	return m, m.putPrograms(ctx, b.Programs)
}

// hold starts the process that holds the namespaces, and waits for their mounts.
func (m *metal) hold(root string) error {
	// unshare makes the mounts private: none is seen outside.
	m.holder = exec.Command("unshare", "--mount", "--pid", "--fork", "--kill-child",
		"bash", "-c", metalScript, "unnest-metal", root, m.work, m.lab.Dir)
	m.holder.SysProcAttr = &unix.SysProcAttr{Setsid: true}
	ready, err := m.holder.StdoutPipe()
	if err != nil {
		return err
	}
	var words strings.Builder
	m.holder.Stderr = &words
	if err := lab.Do(m.lab.HostNS(), m.holder.Start); err != nil {
		m.holder = nil
		return err
	}
	said, _ := io.ReadAll(io.LimitReader(ready, int64(len("ready\n"))))
	go func() {
		defer close(m.ended)
		_ = m.holder.Wait() // it is told to end
	}()
	if len(said) > 0 {
		return nil
	}
	<-m.ended
	return errors.New(strings.TrimSpace(words.String()))
}

// system is the metal as a machine that configurations run on. It has several
// addresses: a server over UDP would answer from another than it was asked at.
func (m *metal) system() *system {
	return &system{
		place: m.inside, address: lab.TenantGateway, listen: lab.TenantGateway, work: "/mnt/work",
		container: m.container, startEngine: m.startEngine,
	}
}

// putPrograms writes what guests have below /usr/local beside Debian's packages.
func (m *metal) putPrograms(ctx context.Context, programs map[string]string) error {
	for target, path := range programs {
		if !strings.HasPrefix(target, "/usr/local/") {
			continue
		}
		f, err := os.Open(path)
		if err != nil {
			return err
		}
		err = m.inside.Put(ctx, target, 0o755, f)
		if err := errors.Join(err, f.Close()); err != nil {
			return err
		}
	}
	return nil
}

// workPrefix begins the directories in the cache that runs work in on this host.
const workPrefix = "work-"

// claimWork makes a directory to work in, or takes over what a killed run has left
// of it. It is this process's as long as the file is open.
func claimWork(dir string) (*os.File, error) {
	for {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return nil, fmt.Errorf("make directory to work in: %w", err)
		}
		f, err := lockWork(dir)
		if err == nil || !errors.Is(err, fs.ErrNotExist) { // another run has reaped it in between
			return f, err
		}
	}
}

// lockWork locks the directory. The error wraps EWOULDBLOCK when its owner lives,
// and fs.ErrNotExist when it is gone.
func lockWork(dir string) (*os.File, error) {
	f, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if err == nil {
		_, err = os.Stat(dir)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("lock %s: %w", dir, err), f.Close())
	}
	return f, nil
}

// reapWork removes the directories in the cache, and the control groups, of runs that
// were killed.
func reapWork(cache string) error {
	left, err := filepath.Glob(filepath.Join(cache, workPrefix+"*"))
	for _, dir := range left {
		lock, lockErr := lockWork(dir)
		switch {
		case lockErr == nil:
			err = errors.Join(err, removeWork(dir), lock.Close())
		case !errors.Is(lockErr, unix.EWOULDBLOCK) && !errors.Is(lockErr, fs.ErrNotExist):
			err = errors.Join(err, lockErr)
		}
	}
	return err
}

// removeWork removes the directory of a run, after the control groups of its
// containers.
func removeWork(dir string) error {
	name := strings.TrimPrefix(filepath.Base(dir), workPrefix)
	return errors.Join(removeGroups(groupOf(name)), os.RemoveAll(dir))
}

// groupOf is the control group of the containers of a lab.
func groupOf(lab string) string { return "unnest-" + lab }

// groupPatience is how long processes may take to leave their control group once
// they are killed.
const groupPatience = 2 * time.Second

// removeGroups removes a control group and those in it, from the one hierarchy of
// version 2 or the many of version 1.
func removeGroups(name string) error {
	var err error
	for _, pattern := range []string{"/sys/fs/cgroup/", "/sys/fs/cgroup/*/"} {
		found, globErr := filepath.Glob(pattern + name)
		err = errors.Join(err, globErr)
		for _, group := range found {
			err = errors.Join(err, removeGroup(group))
		}
	}
	return err
}

func removeGroup(path string) error {
	below, err := os.ReadDir(path)
	for _, e := range below {
		if e.IsDir() {
			err = errors.Join(err, removeGroup(filepath.Join(path, e.Name())))
		}
	}
	if err != nil {
		return err
	}
	for end := time.Now().Add(groupPatience); ; time.Sleep(20 * time.Millisecond) {
		err := unix.Rmdir(path)
		if err == nil || errors.Is(err, unix.ENOENT) {
			return nil
		}
		if !errors.Is(err, unix.EBUSY) || time.Now().After(end) {
			return fmt.Errorf("remove control group %s: %w", path, err)
		}
	}
}

// startEngine starts a containerd of the run's own, which ends with the namespaces.
func (m *metal) startEngine(ctx context.Context) error {
	const script = `set -e
socket=$1
mkdir -p /mnt/cni "${socket%/*}"
cat >/mnt/nerdctl.toml <<END
address = "$socket"
data_root = "/mnt/nerdctl"
cni_path = "/usr/lib/cni"
cni_netconfpath = "/mnt/cni"
END
cat >/mnt/containerd.toml <<END
version = 2
root = "/mnt/containerd"
state = "/run/containerd"
disabled_plugins = ["io.containerd.grpc.v1.cri"]
END
setsid containerd --config /mnt/containerd.toml --address "$socket" >/mnt/containerd.log 2>&1 </dev/null &
for i in $(seq 100); do nerdctl info >/dev/null 2>&1 && exit; sleep 0.1; done
echo "containerd does not answer: $(tail -n 2 /mnt/containerd.log)" >&2
exit 1
`
	return place.Run(ctx, m.inside, "bash", "-c", script, "start", "/run"+m.lab.Dir+"/containerd.sock")
}

// container starts a container whose root is layers over the host's user space.
func (m *metal) container(ctx context.Context, name string, options ...string) (place.Place, error) {
	const script = `set -e
dir=/mnt/containers/$1 group=$2
shift 2
mkdir -p "$dir/upper" "$dir/work" "$dir/merged"
mount -t overlay overlay -o "lowerdir=/,upperdir=$dir/upper,workdir=$dir/work" "$dir/merged"
exec nerdctl run --detach --cgroup-parent "/$group" --volume /usr/local:/usr/local:ro "$@" \
	--rootfs "$dir/merged" /bin/sh -c 'trap exit TERM; while :; do sleep 3600 & wait; done'
`
	args := append([]string{"bash", "-c", script, "container", name, groupOf(m.lab.Name), "--name", name}, options...)
	if err := place.Run(ctx, m.inside, args...); err != nil {
		return nil, err
	}
	return place.Container{Place: m.inside, Engine: engine, Name: name}, nil
}

// endPatience is how long everything inside may take to end.
const endPatience = 5 * time.Second

// end ends the holder, and with it all that runs inside.
func (m *metal) end() {
	if m.holder == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), endPatience)
	defer cancel()
	_ = place.Run(ctx, m.inside, "kill", "1") // this one ends with it
	select {
	case <-m.ended:
	case <-ctx.Done():
		_ = m.holder.Process.Kill()
		<-m.ended
	}
}

// clean removes what was written, once the lab has ended everything that writes.
func (m *metal) clean() error { return errors.Join(removeWork(m.work), m.lock.Close()) }
