package xen

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"crypto/rand"
	_ "embed"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/crypto/ssh"

	"unnest.io/unnest/internal/testbed/guest"
	"unnest.io/unnest/internal/testbed/place"
)

// Kind is a kind of domain.
type Kind string

// The kinds of domains.
const (
	PV  Kind = "pv"  // paravirtual: the kernel asks Xen for what needs privilege
	PVH Kind = "pvh" // hardware virtualization, no emulated devices
	HVM Kind = "hvm" // hardware virtualization, emulated devices: e1000 NIC and AHCI disks
)

// The network of the domains, and dom0's address in it. It is a part of a lab's tenant network that
// no guest and no pod has an address of.
var (
	network = netip.MustParsePrefix("10.201.255.208/28")
	gateway = network.Addr().Next()
)

// Network returns the network of the domains.
func Network() netip.Prefix { return network }

// MaxDomains is the largest number of domains of a host.
const MaxDomains = 13

// Addresses are those that domains can have.
func Addresses() (all []netip.Addr) {
	for i := range MaxDomains {
		all = append(all, addressOf(i+1))
	}
	return all
}

// addressOf is the address of a domain, by its number from 1.
func addressOf(number int) netip.Addr {
	a := gateway
	for range number {
		a = a.Next()
	}
	return a
}

// Config says how to create a domain.
type Config struct {
	Name   string
	Kind   Kind
	Number int // from 1 to MaxDomains, unique on the host: its address and MAC
	VCPUs  int
	Memory int64 // bytes
	Weight int   // of its processor time; 0: Xen's default, 256
}

// Domain is a domain that was created.
type Domain struct {
	Config
	Address string // IP address
	host    *Host
	key     ed25519.PrivateKey // of its SSH server
	id      string             // its number in Xen
}

//go:embed scripts/create
var createScript string

// Create creates a domain and returns at once. It is ready when Login succeeds. If a step fails, no
// domain is left, but its files are until Remove.
func (h *Host) Create(ctx context.Context, c Config) (*Domain, error) {
	d, err := h.create(ctx, c)
	if err != nil {
		return nil, fmt.Errorf("create domain %s on %s: %w", c.Name, h.Dom0, err)
	}
	return d, nil
}

func (h *Host) create(ctx context.Context, c Config) (*Domain, error) {
	if c.Number < 1 || c.Number > MaxDomains {
		return nil, fmt.Errorf("number %d: a Xen host has at most %d domains", c.Number, MaxDomains)
	}
	_, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return nil, err
	}
	d := &Domain{Config: c, Address: addressOf(c.Number).String(), host: h, key: key}
	own, err := d.archive()
	if err != nil {
		return nil, err
	}
	if err := h.putShared(ctx); err != nil {
		return nil, err
	}
	file := h.Dir + "/" + c.Name
	err = h.Dom0.Put(ctx, file+".cpio", 0o600, bytes.NewReader(own))
	if err == nil {
		err = h.Dom0.Put(ctx, file+".in", 0o600, strings.NewReader(c.text(h.name(c.Name), h.Image.Kernel, h.Dir, h.Emulated)))
	}
	if err == nil {
		err = place.Run(ctx, h.Dom0, "sh", "-c", createScript, "create", h.Dir, c.Name, h.Image.Root)
	}
	var id []byte
	if err == nil {
		id, err = place.Output(ctx, h.Dom0, "xl", "domid", h.name(c.Name))
	}
	d.id = strings.TrimSpace(string(id))
	if err != nil {
		return nil, errors.Join(err, d.Destroy(ctx))
	}
	return d, nil
}

//go:embed scripts/block
var blockScript string

//go:embed scripts/vif
var vifScript string

// putShared puts what the domains share into dom0, unless it is there: the scripts that xl calls
// for their devices, and their initrd.
func (h *Host) putShared(ctx context.Context) error {
	if place.Run(ctx, h.Dom0, "test", "-e", h.Dir+"/initrd") == nil {
		return nil
	}
	initrd, err := os.Open(h.Image.Initrd)
	if err != nil {
		return fmt.Errorf("read initrd: %w", err)
	}
	defer initrd.Close()
	return errors.Join(
		h.Dom0.Put(ctx, h.Dir+"/block", 0o755, strings.NewReader(blockScript)),
		h.Dom0.Put(ctx, h.Dir+"/vif", 0o755, strings.NewReader(vifScript)),
		h.Dom0.Put(ctx, h.Dir+"/initrd", 0o600, initrd))
}

// seed are the domain's own files.
func (d *Domain) seed() guest.Seed {
	return guest.Seed{
		Hostname: d.Name, HostKey: d.key, Authorized: d.host.Key.PublicKey(),
		Interfaces: []guest.Interface{{
			MAC: d.mac(), Name: "eth0", Address: fmt.Sprintf("%s/%d", d.Address, network.Bits()), Gateway: gateway.String(),
		}},
	}
}

const pollInterval = 500 * time.Millisecond

// Login waits until a command can run in the domain, and returns the connection. It ends early
// where the domain is gone.
func (d *Domain) Login(ctx context.Context) (*place.SSH, error) {
	key, err := ssh.NewPublicKey(d.key.Public())
	if err != nil {
		return nil, err
	}
	for {
		in, err := place.DialSSH(ctx, "domain "+d.Name, net.JoinHostPort(d.Address, "22"), d.host.Dial, guest.ClientConfig(d.host.Key, key))
		if err == nil {
			return in.Patient(), nil
		}
		if gone := d.Err(ctx); gone != nil {
			return nil, gone
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("log in to domain %s: %w: %w%s", d.Name, context.Cause(ctx), err, d.console())
		case <-time.After(pollInterval):
		}
	}
}

// watchInterval is how often Watch looks. In an emulated dom0 a command takes some 50 ms of a processor.
const watchInterval = 30 * time.Second

// Watch returns nil when the domain is gone, which dom0 shows by the end of its NIC. It
// returns an error if dom0 cannot be asked, or ctx has ended. Who is connected to the domain does
// not learn from the connection that it is gone.
func (d *Domain) Watch(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(watchInterval):
		}
		if has, err := d.hasNIC(ctx); err != nil || !has {
			return err
		}
	}
}

// hasNIC reports whether dom0 has the NIC of the domain. The NIC of an HVM domain ends with its device model, a
// QEMU in dom0. If only the device model ends, Xen still lists the domain, but the domain waits for its devices forever.
func (d *Domain) hasNIC(ctx context.Context) (bool, error) {
	name := "vif" + d.id + ".0"
	if d.Kind == HVM {
		name += "-emu"
	}
	err := place.Run(ctx, d.host.Dom0, "test", "-e", "/sys/class/net/"+name)
	if exit, ok := errors.AsType[*place.ExitError](err); ok && exit.Code == 1 {
		return false, nil
	}
	return err == nil, err
}

// ErrGone is wrapped by the error of a domain that has ended.
var ErrGone = errors.New("gone")

// Err wraps ErrGone, and quotes why, once the domain is gone. It returns nil while it runs.
func (d *Domain) Err(ctx context.Context) error {
	all, err := d.host.List(ctx)
	if err != nil {
		return err
	}
	for _, e := range all {
		if e.Name != d.host.name(d.Name) || !e.alive() {
			continue
		}
		if has, err := d.hasNIC(ctx); err != nil || has {
			return err
		}
		return fmt.Errorf("domain %s is %w: its NIC in dom0 has ended%s%s", d.Name, ErrGone, d.modelEnd(ctx), d.console())
	}
	return fmt.Errorf("domain %s is %w%s%s", d.Name, ErrGone, d.reason(), d.console())
}

// modelEnd says that the device model of an HVM domain has ended, and quotes what dom0's kernel says last about such
// programs of QEMU. Other domains have none.
func (d *Domain) modelEnd(ctx context.Context) string {
	if d.Kind != HVM {
		return ""
	}
	out, err := place.Output(ctx, d.host.Dom0, "sh", "-c", "dmesg | grep 'xen-qemu\\|qemu-system' | tail -n 1")
	if said := strings.TrimSpace(string(out)); err == nil && said != "" {
		return " with its device model; dom0's kernel says: " + said
	}
	return " with its device model"
}

// reason quotes the last line of Xen's log that is about the domain's processors, if there is one.
func (d *Domain) reason() string {
	ctx, cancel := context.WithTimeout(context.Background(), guestTimeout)
	defer cancel()
	out, err := place.Output(ctx, d.host.Dom0, "xl", "dmesg")
	if err != nil {
		return ""
	}
	return reasonOf(d.id, string(out))
}

// reasonOf is reason, from Xen's log. There "d3v0" is the first processor of the domain 3.
func reasonOf(id, log string) (reason string) {
	for line := range strings.Lines(log) {
		if said, ok := strings.CutPrefix(line, "(XEN) d"+id+"v"); ok {
			reason = "; Xen says: d" + id + "v" + strings.TrimSpace(said)
		}
	}
	return reason
}

// console quotes the last lines of the domain's console, if dom0 keeps them. That of an HVM domain is kept by QEMU.
func (d *Domain) console() string {
	ctx, cancel := context.WithTimeout(context.Background(), guestTimeout)
	defer cancel()
	file := "/var/log/xen/console/guest-" + d.host.name(d.Name) + ".log"
	if d.Kind == HVM {
		file = d.host.Dir + "/" + d.Name + consoleSuffix
	}
	out, err := place.Output(ctx, d.host.Dom0, "tail", "-n", "5", file)
	if err != nil || len(out) == 0 {
		return ""
	}
	return "; its console ends: " + strings.Join(strings.Fields(string(out)), " ")
}

const guestTimeout = 10 * time.Second

// Pause stops the processors of the domain.
func (d *Domain) Pause(ctx context.Context) error { return d.tell(ctx, "pause") }

// Resume lets a paused domain run again.
func (d *Domain) Resume(ctx context.Context) error { return d.tell(ctx, "unpause") }

// Weigh sets the weight of the domain's processor time. Xen's default is 256.
func (d *Domain) Weigh(ctx context.Context, weight int) error {
	if err := place.Run(ctx, d.host.Dom0, "xl", "sched-credit2", "-d", d.host.name(d.Name), "-w", strconv.Itoa(weight)); err != nil {
		return fmt.Errorf("weigh domain %s: %w", d.Name, err)
	}
	return nil
}

func (d *Domain) tell(ctx context.Context, verb string) error {
	if err := place.Run(ctx, d.host.Dom0, "xl", verb, d.host.name(d.Name)); err != nil {
		return fmt.Errorf("%s domain %s: %w", verb, d.Name, err)
	}
	return nil
}

// Destroy ends the domain, if it runs, and removes its files.
func (d *Domain) Destroy(ctx context.Context) error {
	const script = `! xl list "$2" >/dev/null 2>&1 || xl destroy "$2"; rm -f -- "$1".cpio "$1".in "$1".cfg "$1".initrd "$1".disk "$1"` + consoleSuffix
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
	defer cancel()
	if err := place.Run(ctx, d.host.Dom0, "sh", "-c", script, "destroy", d.host.Dir+"/"+d.Name, d.host.name(d.Name)); err != nil {
		return fmt.Errorf("destroy domain %s: %w", d.Name, err)
	}
	return nil
}

// mac is the domain's address on the bridge, of the range that Xen has.
func (c Config) mac() string { return fmt.Sprintf("00:16:3e:75:6e:%02x", c.Number) }

// commandLine is that of the kernel, on emulated processors or others.
func (c Config) commandLine(emulated bool) string {
	console, more := "hvc0", ""
	if c.Kind == HVM { // its drivers for Xen would take the place of the emulated devices
		console, more = "ttyS0", " nopv xen_nopv"
	}
	if emulated {
		more += guest.FixedAddresses
	}
	return "console=" + console + more + " rdinit=/domain-init quiet panic=-1 net.ifnames=0 mitigations=off random.trust_cpu=on"
}

// consoleSuffix ends the name of the file, in the run's directory, in which QEMU keeps what an HVM domain prints.
const consoleSuffix = ".console"

// text is the domain's configuration for xl. @root@ and @disk@ stand for its disks.
func (c Config) text(name, kernel, dir string, emulated bool) string {
	disk, root, nic, block := "xvd", "", "", ",script="+dir+"/block"
	if c.Kind == HVM {
		// Of emulated drives, only CD-ROMs can be read-only (XSA-142). QEMU opens disks itself, without a script.
		disk, root, nic, block = "hd", ",devtype=cdrom", ",type=ioemu,model=e1000", ",backendtype=qdisk"
	}
	lines := []string{
		fmt.Sprintf("name = %q", name),
		fmt.Sprintf("type = %q", c.Kind),
		fmt.Sprintf("kernel = %q", kernel),
		fmt.Sprintf("ramdisk = %q", dir+"/"+c.Name+".initrd"),
		fmt.Sprintf("extra = %q", c.commandLine(emulated)),
		fmt.Sprintf("memory = %d", c.Memory>>20),
		fmt.Sprintf("vcpus = %d", c.VCPUs),
		fmt.Sprintf("disk = [ 'format=raw,vdev=%sa,access=ro%s%s,target=@root@', 'format=raw,vdev=%sb,access=rw%s,target=@disk@' ]", disk, root, block, disk, block),
		fmt.Sprintf("vif = [ 'mac=%s,bridge=unnest0,script=%s/vif%s' ]", c.mac(), dir, nic),
		"on_poweroff = \"destroy\"", "on_reboot = \"destroy\"", "on_crash = \"destroy\"",
	}
	if c.Weight > 0 {
		lines = append(lines, fmt.Sprintf("cpu_weight = %d", c.Weight))
	}
	if c.Kind == HVM {
		lines = append(lines, fmt.Sprintf("serial = %q", "file:"+dir+"/"+c.Name+consoleSuffix), "vga = \"none\"", "hdtype = \"ahci\"", "xen_platform_pci = 0")
	}
	return strings.Join(lines, "\n") + "\n"
}
