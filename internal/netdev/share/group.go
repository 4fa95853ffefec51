package share

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

// Groups are control groups (cgroup v2), one for the servers of each guest, next to the
// host's services: servers outlive the daemon's own group. Each group has the same weight
// for the processor.
type Groups struct {
	dir string
	mu  sync.Mutex // held while a group is made or removed
}

// Limits are the limits of a group.
type Limits struct {
	Memory int64 // bytes
	Tasks  int   // processes and threads
}

// groupsName is the group of all groups.
const groupsName = "unnest-volumes"

// controllers are those of all groups.
var controllers = []string{"cpu", "memory", "pids"}

// OpenGroups returns the groups of this host, after it has removed those that are empty.
// The error says what the host lacks.
func OpenGroups() (*Groups, error) {
	all, err := mounts()
	if err != nil {
		return nil, fmt.Errorf("open control groups: %w", err)
	}
	i := slices.IndexFunc(all, func(m mounted) bool { return m.kind == "cgroup2" })
	if i < 0 {
		return nil, errors.New("open control groups: the host has no cgroup v2: mount it at /sys/fs/cgroup")
	}
	g, err := openGroups(all[i].point)
	if err != nil {
		return nil, fmt.Errorf("open control groups in %s: %w", all[i].point, err)
	}
	return g, nil
}

func openGroups(root string) (*Groups, error) {
	content, err := os.ReadFile(filepath.Join(root, "cgroup.controllers"))
	if err != nil {
		return nil, err
	}
	has := strings.Fields(string(content))
	for _, c := range controllers {
		if !slices.Contains(has, c) {
			return nil, fmt.Errorf("controller %s is missing: boot the host with cgroup v2 only", c)
		}
	}
	g := &Groups{dir: filepath.Join(root, groupsName)}
	if err := makeGroup(g.dir); err != nil {
		return nil, err
	}
	for _, dir := range []string{root, g.dir} {
		if err := write(dir, "cgroup.subtree_control", "+"+strings.Join(controllers, " +")); err != nil {
			return nil, err
		}
	}
	return g, g.RemoveEmpty()
}

// RemoveEmpty removes the groups that have no process.
func (g *Groups) RemoveEmpty() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	entries, err := os.ReadDir(g.dir)
	for _, e := range entries {
		if !e.IsDir() {
			continue
		}
		rmErr := unix.Rmdir(filepath.Join(g.dir, e.Name()))
		if !errors.Is(rmErr, unix.EBUSY) && !errors.Is(rmErr, unix.ENOENT) {
			err = errors.Join(err, rmErr)
		}
	}
	if err != nil {
		return fmt.Errorf("remove control groups: %w", err)
	}
	return nil
}

// Start starts a command in a group, which it makes if necessary.
func (g *Groups) Start(cmd *exec.Cmd, name string, l Limits) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	dir := filepath.Join(g.dir, name)
	err := makeGroup(dir)
	err = errors.Join(err, write(dir, "memory.max", strconv.FormatInt(l.Memory, 10)), write(dir, "pids.max", strconv.Itoa(l.Tasks)))
	if err != nil {
		return fmt.Errorf("limit servers: %w", err)
	}
	group, err := os.Open(dir)
	if err != nil {
		return fmt.Errorf("limit servers: %w", err)
	}
	defer group.Close()
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &unix.SysProcAttr{}
	}
	cmd.SysProcAttr.UseCgroupFD, cmd.SysProcAttr.CgroupFD = true, int(group.Fd())
	return cmd.Start()
}

func makeGroup(dir string) error {
	if err := os.Mkdir(dir, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return nil
}

// write writes a file of a group, which exists.
func write(dir, file, text string) error {
	f, err := os.OpenFile(filepath.Join(dir, file), os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteString(text)
	return errors.Join(err, f.Close())
}
