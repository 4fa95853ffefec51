package guest

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"

	"unnest.io/unnest/internal/testbed/image"
)

// Snapshot is a frozen guest: its memory, its disk and the state of its devices. Its
// container engine runs, if its image has one. It has no name, no key and no NIC: see
// image/rootfs/freeze. Guests that are restored from it map its memory copy-on-write, or have a copy
// of it if other processes map their memory.
type Snapshot struct {
	Dir string
	manifest
	making bool // the guest that will be frozen writes to the files
}

// The files of a snapshot.
const (
	memoryFile   = "memory"
	diskFile     = "disk.qcow2" // what the guest has written to the disk of the image
	deviceFile   = "devices"    // QEMU's migration stream
	manifestFile = "snapshot.json"
)

// seedRoom is the size of the seed's file in the firmware configuration device of a
// guest that is restored. The guest has read the size before it was frozen.
const seedRoom = 128 << 10

// The content of the file opt/unnest/kind there. Both are equally long.
const (
	kindFreeze  = "freeze"
	kindRestore = "thawed"
)

// ErrBootOnly is the error for a configuration that cannot be frozen.
var ErrBootOnly = errors.New("guest cannot be restored")

// checkFreezable says why a guest like c cannot be restored.
func (c Config) checkFreezable() error {
	switch {
	case c.Arch.OrAMD64() != image.AMD64:
		return fmt.Errorf("%w: its architecture is %s", ErrBootOnly, c.Arch)
	case c.CPU != "":
		return fmt.Errorf("%w: its processor %s may have hardware virtualization", ErrBootOnly, c.CPU)
	case c.Emulated:
		return fmt.Errorf("%w: its hardware is emulated", ErrBootOnly)
	case len(c.Disks) > 0:
		return fmt.Errorf("%w: it has disks for another guest", ErrBootOnly)
	}
	return nil
}

// frozen returns the configuration of the guest to freeze for guests like c. It has no
// identity. Its number of ports is a multiple of the functions of a device number, so
// that guests with different numbers of slots share a snapshot.
func (c Config) frozen(s *Snapshot) Config {
	return Config{
		Name: "frozen", Dir: s.Dir, Arch: c.Arch, Image: c.Image, Accel: c.Accel, CPU: c.CPU, VCPUs: c.VCPUs, Memory: c.Memory,
		Slots: frozenSlots(c.Slots), Shares: c.Shares, CredentialDrive: c.CredentialDrive, Snapshot: s,
		Progress: c.Progress, patience: c.patience,
	}
}

func frozenSlots(slots int) int { return max(1, (slots+functions-1)/functions) * functions }

// rootDisk are the options of the root disk. A guest that is frozen or restored has a
// disk over that of the image.
func (c Config) rootDisk() string {
	switch {
	case c.Snapshot == nil:
		return "format=raw,snapshot=on,cache=unsafe,file=" + c.Image.Root
	case c.Snapshot.making:
		return "format=qcow2,cache=unsafe,werror=stop,file=" + c.Snapshot.path(diskFile)
	}
	return "format=qcow2,snapshot=on,cache=unsafe,file=" + c.Snapshot.path(diskFile)
}

// consoleArguments are the arguments of the character device of the console. The host
// writes to it when a guest is frozen or restored.
func (c Config) consoleArguments() []string {
	if c.Snapshot == nil {
		return []string{"-chardev", "file,id=console,path=" + c.path(consoleFile)}
	}
	return []string{"-chardev", fmt.Sprintf("socket,id=console,fd=%d,logfile=%s", c.consoleFD(), c.path(consoleFile))}
}

// The descriptors of QEMU's ends of the console and of the monitor that freezes or
// restores the guest, and of a memory that other processes map.
func (c Config) consoleFD() int { return firstTAP + len(c.NICs) }
func (c Config) monitorFD() int { return c.consoleFD() + 1 }
func (c Config) memoryFD() int  { return c.monitorFD() + 1 }

// snapshotArguments are the arguments for a guest that is frozen or restored. Its
// generation ID is new in each QEMU.
func (c Config) snapshotArguments() []string {
	if c.Snapshot == nil {
		return nil
	}
	kind, share, memory := kindRestore, "off", c.Snapshot.path(memoryFile)
	switch {
	case c.Snapshot.making:
		kind, share = kindFreeze, "on"
	case c.Shares > 0:
		share, memory = "on", fmt.Sprint("/proc/self/fd/", c.memoryFD())
	}
	args := []string{
		"-object", "memory-backend-file,id=ram,share=" + share + ",size=" + strconv.FormatInt(c.Memory>>20, 10) + "M,mem-path=" + memory,
		"-device", "vmgenid,guid=auto",
		"-fw_cfg", "name=opt/unnest/kind,string=" + kind,
		"-chardev", fmt.Sprintf("socket,id=monitor,fd=%d", c.monitorFD()), "-mon", "chardev=monitor,mode=control",
	}
	if !c.Snapshot.making {
		args = append(args, "-S", "-incoming", "defer")
	}
	return args
}

func (s *Snapshot) path(file string) string { return filepath.Join(s.Dir, file) }

// Snapshots finds frozen guests in a cache directory, and makes those that are missing.
type Snapshots struct {
	Cache    string            // directory, also of the images
	Progress func(step string) // called with each step; may be nil
	failed   sync.Map          // errors of freezes, by directory: none is tried twice
}

// For returns the snapshot for guests like c, and makes it first if it is missing, which
// takes as long as a boot with the start of the container engine. If several processes
// want the same snapshot, one makes it and the others wait. It removes a damaged
// snapshot. The error says why the guest has to boot.
func (s *Snapshots) For(ctx context.Context, c Config) (*Snapshot, error) {
	if err := c.checkFreezable(); err != nil {
		return nil, err
	}
	inputs, err := c.inputs(ctx)
	if err != nil {
		return nil, fmt.Errorf("find snapshot: %w", err)
	}
	dir := image.SnapshotDir(s.Cache, inputs)
	if socket := filepath.Join(dir+".part", daemonQMP); len(socket) > maxSocket {
		return nil, fmt.Errorf("socket %s: want a path of at most %d bytes: set UNNEST_CACHE to a shorter directory", socket, maxSocket)
	}
	found, err := openSnapshot(dir, inputs)
	if !errors.Is(err, fs.ErrNotExist) {
		return found, err
	}
	b := image.Builder{Cache: s.Cache, Progress: s.Progress}
	unlock, err := b.LockSnapshots(ctx)
	if err != nil {
		return nil, err
	}
	defer unlock()
	if err, ok := s.failed.Load(dir); ok {
		return nil, err.(error)
	}
	if found, err = openSnapshot(dir, inputs); !errors.Is(err, fs.ErrNotExist) {
		return found, err
	}
	err = b.MakeSnapshot(ctx, dir, func(tmp string) error {
		s.report("freezing a guest with %d processors and %d MiB, to restore others from it (once)", c.VCPUs, c.Memory>>20)
		c.Progress = s.Progress
		return c.makeSnapshot(ctx, tmp, inputs)
	})
	if err != nil {
		if ctx.Err() == nil {
			s.failed.Store(dir, err)
		}
		return nil, err
	}
	return openSnapshot(dir, inputs)
}

// Report says why a guest has booted that was to be restored. s may be nil.
func (s *Snapshots) Report(g *Guest) {
	if s != nil && g.NotRestored != nil {
		s.report("%s boots: %s", g.Name, strings.ReplaceAll(g.NotRestored.Error(), "\n", "; "))
	}
}

func (s *Snapshots) report(format string, args ...any) {
	if s.Progress != nil {
		s.Progress(fmt.Sprintf(format, args...))
	}
}

// makeSnapshot makes the snapshot for guests like c in dir.
func (c Config) makeSnapshot(ctx context.Context, dir string, inputs []string) error {
	s := &Snapshot{Dir: dir, making: true}
	m, err := c.frozen(s).freeze(ctx)
	if err != nil {
		return err
	}
	m.Inputs = inputs
	return writeManifest(dir, m)
}

// openSnapshot opens the snapshot in dir and marks it as used. If there is none, the
// error wraps fs.ErrNotExist. A damaged snapshot is removed.
func openSnapshot(dir string, inputs []string) (*Snapshot, error) {
	m, err := readManifest(dir, inputs)
	if errors.Is(err, errDamaged) {
		return nil, errors.Join(fmt.Errorf("%w: removed %s", err, dir), os.RemoveAll(dir))
	}
	if err != nil {
		return nil, err
	}
	image.MarkUsed(dir)
	return &Snapshot{Dir: dir, manifest: m}, nil
}
