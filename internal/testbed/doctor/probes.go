package doctor

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"runtime"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/rlimit"
	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"

	"unnest.io/unnest/internal/netdev/share"
	"unnest.io/unnest/internal/testbed/guest"
	"unnest.io/unnest/internal/testbed/image"
	"unnest.io/unnest/internal/testbed/place"
)

// Probes are the questions that checks ask about a machine.
type Probes struct {
	Root     bool   // the process has user id 0
	Arch     string // as Go names it
	CPUs     int    // processors it may use
	CacheDir string // where guest images are kept

	// Accel chooses the default accelerator of guests.
	Accel func() (guest.Choice, error)
	// ReadFile returns the content of a file of /proc or /sys.
	ReadFile func(path string) (string, error)
	// Stat returns an error unless the file at path exists.
	Stat func(path string) error
	// OpenDevice opens a device for reading and writing, and closes it.
	OpenDevice func(path string) error
	// LookPath returns the path of a binary.
	LookPath func(binary string) (string, error)
	// Output runs a binary and returns its standard output and standard error.
	Output func(ctx context.Context, path string, args ...string) (string, error)
	// Dial connects to a unix socket and closes the connection.
	Dial func(socket string) error
	// FreeDisk returns the free bytes of the file system that holds dir, or will hold it.
	FreeDisk func(dir string) (uint64, error)
	// HasImage reports whether CacheDir has a guest image.
	HasImage func() bool
	// Namespace makes a network namespace, calls try with it and removes it.
	Namespace func(try func(Namespace) error) error
	// VolumeServer finds the program that serves volumes.
	VolumeServer func() (share.Program, error)
	// LoadProgram loads an eBPF program for tc that does nothing.
	LoadProgram func() error
}

// Namespace is a temporary network namespace.
type Namespace interface {
	// AddLink adds a link of the kind, "bridge" or "veth".
	AddLink(kind string) error
	// Masquerade adds an nftables rule as NAT needs it.
	Masquerade() error
}

// probeTimeout limits each command and each connection of a probe.
const probeTimeout = 10 * time.Second

// System returns the probes of this machine. cacheDir is the directory of guest images.
func System(cacheDir string) Probes {
	return Probes{
		Root:        os.Geteuid() == 0,
		Arch:        runtime.GOARCH,
		CPUs:        runtime.NumCPU(),
		CacheDir:    cacheDir,
		Accel:       func() (guest.Choice, error) { return guest.ChooseAccel(guest.AccelAuto) },
		ReadFile:    func(path string) (string, error) { b, err := os.ReadFile(path); return string(b), err },
		Stat:        func(path string) error { _, err := os.Stat(path); return err },
		OpenDevice:  guest.OpenDevice,
		LookPath:    exec.LookPath,
		Output:      output,
		Dial:        dial,
		FreeDisk:    image.FreeDisk,
		HasImage:    func() bool { return image.Cached(cacheDir) },
		Namespace:   withNamespace,
		LoadProgram: loadProgram,

		VolumeServer: share.FindProgram,
	}
}

func output(ctx context.Context, path string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, path, args...)
	cmd.WaitDelay = time.Second // for children that keep the pipe open
	out, err := cmd.CombinedOutput()
	return string(out), err
}

func dial(socket string) error {
	conn, err := net.DialTimeout("unix", socket, probeTimeout)
	if err != nil {
		return err
	}
	return conn.Close()
}

// namespace is the network namespace of the calling thread.
type namespace struct{}

// withNamespace calls try in a network namespace without a name. It ends, with
// everything in it, when try returns.
func withNamespace(try func(Namespace) error) error {
	return place.InNetNS("/proc/thread-self/ns/net", func() error { // on a thread that ends with it
		ns, err := netns.New()
		if err != nil {
			return fmt.Errorf("make network namespace: %w", err)
		}
		return errors.Join(try(namespace{}), ns.Close())
	})
}

// AddLink adds a bridge or a pair of veth.
func (namespace) AddLink(kind string) error {
	links := map[string]netlink.Link{
		"bridge": &netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: "br0"}},
		"veth":   &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "veth0"}, PeerName: "veth1"},
	}
	link, known := links[kind]
	if !known {
		return fmt.Errorf("kind of link %q: want bridge or veth", kind)
	}
	if err := netlink.LinkAdd(link); err != nil {
		return fmt.Errorf("add %s: %w", kind, err)
	}
	return nil
}

// Masquerade adds a table with a NAT chain and one rule.
func (namespace) Masquerade() error {
	conn, err := nftables.New()
	if err != nil {
		return fmt.Errorf("open nftables: %w", err)
	}
	table := conn.AddTable(&nftables.Table{Family: nftables.TableFamilyIPv4, Name: "unnest"})
	chain := conn.AddChain(&nftables.Chain{
		Name: "postrouting", Table: table, Type: nftables.ChainTypeNAT,
		Hooknum: nftables.ChainHookPostrouting, Priority: nftables.ChainPriorityNATSource,
	})
	conn.AddRule(&nftables.Rule{Table: table, Chain: chain, Exprs: []expr.Any{&expr.Masq{}}})
	if err := conn.Flush(); err != nil {
		return fmt.Errorf("add masquerade rule: %w", err)
	}
	return nil
}

// loadProgram loads and unloads a program for tc that lets every packet pass.
func loadProgram() error {
	// Kernels before 5.11 count programs against RLIMIT_MEMLOCK.
	if err := rlimit.RemoveMemlock(); err != nil {
		return fmt.Errorf("remove memory lock limit: %w", err)
	}
	program, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Type:         ebpf.SchedCLS,
		License:      "Apache-2.0",
		Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, 0), asm.Return()},
	})
	if err != nil {
		return fmt.Errorf("load program: %w", err)
	}
	return program.Close()
}
