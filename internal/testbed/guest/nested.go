package guest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"unnest.io/unnest/internal/testbed/image"

	"unnest.io/unnest/internal/testbed/place"
)

// NestingCPU is the processor that TCG shows to a guest that runs guests. It has AMD's
// hardware virtualization, which TCG emulates, with nested paging. Under KVM a guest
// has the processor of the host, if that supports nesting.
const NestingCPU = "EPYC,+svm,+npt"

// NestingCPUFor is NestingCPU for what QEMU prints as its version. TCG of QEMU 8 translates addresses
// wrongly in nested paging, which no question to QEMU tells: the kernel of an inner guest ends early
// in its boot (tried with 8.2.2; 7.2 and 10.0 are right).
func NestingCPUFor(version string) string {
	if strings.HasPrefix(version, "QEMU emulator version 8.") {
		return strings.Replace(NestingCPU, "+npt", "-npt", 1)
	}
	return NestingCPU
}

// NestingDisks are the disks that pass the image of an inner guest to the outer one.
func NestingDisks(inner image.Image) []Disk {
	return []Disk{{inner.Kernel, "unnest-kernel"}, {inner.Initrd, "unnest-initrd"}, RootDisk(inner)}
}

// RootDisk is the disk that passes the root file system of an image to a guest.
func RootDisk(i image.Image) Disk { return Disk{i.Root, "unnest-root"} }

// In the outer guest, nestedDir has the files of the inner guest, and nestedTAP is the TAP
// of its NIC: see image/rootfs/nest.
const (
	nestedDir = "/var/lib/unnest/nested"
	nestedTAP = "nested0"
)

// StartNested starts a guest in the guest outer, which is reached as in, from the image
// that outer got as NestingDisks. uplink is the MAC of outer's NIC to the network of
// the inner guest. c has one NIC, with a MAC only. Accelerator auto selects KVM if it
// opens in the outer guest. Choice says which one it is, and why.
//
// The logs of the inner guest are in c.Dir on this host. It ends with the outer guest,
// and with the connection in.
func StartNested(ctx context.Context, c Config, outer Config, in place.Place, uplink string) (_ *Guest, _ Choice, err error) {
	fail := func(err error) (*Guest, Choice, error) {
		return nil, Choice{}, fmt.Errorf("start guest %s in %s: %w", c.Name, in, err)
	}
	if err := errors.Join(c.check(), c.checkNested(outer)); err != nil {
		return fail(err)
	}
	choice, err := prepareNested(ctx, c, outer, in, uplink)
	if err != nil {
		return fail(err)
	}
	c.Accel, c.inEmulated = choice.Accel, outer.emulated()
	inside := c.inside().withCounter()
	seed, err := c.Seed.Archive()
	if err == nil {
		err = in.Put(ctx, inside.path(seedFile), 0o600, bytes.NewReader(seed))
	}
	if err != nil {
		return fail(err)
	}
	g, err := c.startIn(context.WithoutCancel(ctx), in, inside.nestedArguments())
	if err != nil {
		return fail(err)
	}
	return g, choice, nil
}

// startIn starts QEMU in a place, with its console and its output in the logs in c.Dir.
func (c Config) startIn(ctx context.Context, in place.Place, args []string) (*Guest, error) {
	console, err := os.Create(c.path(consoleFile))
	if err != nil {
		return nil, err
	}
	log, err := os.Create(c.path(qemuFile))
	if err != nil {
		return nil, errors.Join(err, console.Close())
	}
	ctx, stop := context.WithCancel(ctx)
	g := &Guest{Config: c, started: time.Now(), stop: stop, done: make(chan struct{})}
	process, err := in.Start(ctx, place.Command{
		Args: append([]string{QEMU(c.Arch)}, args...), Stdout: console, Stderr: log,
	})
	if err != nil {
		stop()
		return nil, errors.Join(err, console.Close(), log.Close())
	}
	go func() {
		defer close(g.done)
		g.exit = errors.Join(process.Wait(), console.Close(), log.Close())
		stop()
	}()
	return g, nil
}

// checkNested refuses what does not fit into the guest outer.
func (c Config) checkNested(outer Config) error {
	switch {
	case c.Arch.OrAMD64() != image.AMD64 || outer.Arch.OrAMD64() != image.AMD64:
		return fmt.Errorf("%s in %s: only %s nests", c.Arch.OrAMD64(), outer.Arch.OrAMD64(), image.AMD64)
	case len(c.NICs) != 1:
		return fmt.Errorf("%d NICs: an inner guest has one", len(c.NICs))
	case c.Slots > 0:
		return fmt.Errorf("%d slots: NICs cannot be plugged into an inner guest: want 0", c.Slots)
	case c.Memory > outer.Memory: // equal is overcommitment
		return fmt.Errorf("%d MiB of memory: the outer guest has %d MiB: give it more", c.Memory>>20, outer.Memory>>20)
	}
	return nil
}

// prepareNested prepares the outer guest and resolves the accelerator there. That may take as long as
// outer may take to become ready.
func prepareNested(ctx context.Context, c, outer Config, in place.Place, uplink string) (Choice, error) {
	limit := outer.limits().all
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("not prepared after %v", limit))
	defer cancel()
	args := []string{"/etc/unnest/nest", uplink}
	for _, path := range []string{c.Image.Kernel, c.Image.Initrd} {
		info, err := os.Stat(path)
		if err != nil {
			return Choice{}, fmt.Errorf("read image: %w", err)
		}
		args = append(args, strconv.FormatInt(info.Size(), 10))
	}
	out, err := place.Output(ctx, in, args...)
	if err != nil {
		return Choice{}, err
	}
	return chooseNested(c.Accel, strings.TrimSpace(string(out)))
}

// chooseNested resolves want in a guest whose script prints that KVM opens ("kvm"), or
// why it does not.
func chooseNested(want Accel, printed string) (Choice, error) {
	switch {
	case printed == "":
		return Choice{}, errors.New("/etc/unnest/nest prints nothing: want kvm, or why not")
	case printed == string(KVM) && want != TCG:
		return chooseAccel(want, func() error { return nil }, func() (bool, error) { return true, nil })
	}
	return chooseAccel(want, func() error { return errors.New(printed) }, nil)
}

// inside returns the configuration with the paths in the outer guest.
func (c Config) inside() Config {
	c.Dir = nestedDir
	c.Image.Kernel, c.Image.Initrd, c.Image.Root = nestedDir+"/vmlinux", nestedDir+"/initrd", nestedDir+"/root"
	return c
}

// nestedArguments are the arguments of QEMU in a guest, with the console as its output.
// Every guest has vhost as a module.
func (c Config) nestedArguments() []string {
	return append(c.machineArguments(),
		"-chardev", "stdio,id=console,signal=off", "-serial", "chardev:console", "-monitor", "none",
		"-netdev", "tap,id=nic0,ifname="+nestedTAP+",script=no,downscript=no,vhost=on",
		"-device", c.nicArgument(0, c.NICs[0]))
}
