// Package boot is the study of the start of guests: how long they take to boot or to be restored, and how much
// memory they need.
package boot

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/procfs"

	"unnest.io/unnest/internal/measure/experiment"
	"unnest.io/unnest/internal/measure/machines"
	"unnest.io/unnest/internal/measure/stack"
	"unnest.io/unnest/internal/measure/workload"
	"unnest.io/unnest/internal/testbed/fleet"
	"unnest.io/unnest/internal/testbed/guest"
	"unnest.io/unnest/internal/testbed/place"
)

// The configurations of the boot study are named after kernel files, or after the way in
// which the guest begins.
const (
	elfKernel = "vmlinux"  // uncompressed, as Unnest boots it
	bzImage   = "bzImage"  // compressed, as Debian ships it
	booted    = "booted"   // the same as elfKernel
	restored  = "restored" // from a snapshot
)

// Study is the study of the start of guests.
type Study struct{ *machines.Set }

// Check returns an error unless the study can measure the configuration.
func (b *Study) Check(c stack.Configuration) error {
	switch {
	case !slices.Contains([]string{elfKernel, bzImage, booted, restored}, c.Name):
		return errors.New("probes boot and ready compare the kernels " + elfKernel + " and " + bzImage +
			", and guests that are " + booted + " and " + restored + ": use these names")
	case c.Start != "":
		return fmt.Errorf("start %s: the name of the configuration says how its guests begin: leave it out", c.Start)
	case c.Stack.String() != "vm" || c.Architecture() != stack.X8664:
		return errors.New("probes boot and ready need stack vm and arch " + string(stack.X8664))
	}
	return nil
}

// Needs says what has to be up before Begin.
func (b *Study) Needs() machines.Needs { return machines.Needs{} }

// Begin prepares the study, when the machines are up.
func (b *Study) Begin(ctx context.Context) error {
	return b.FindTool(ctx, place.Local{}, machines.QEMU)
}

// Start makes the snapshot, which takes as long as a boot, before guests are measured.
func (b *Study) Start(ctx context.Context, c stack.Configuration) error {
	if c.Name != restored {
		return nil
	}
	o, err := b.guestOptions(c)
	if err != nil {
		return err
	}
	_, err = o.Snapshots.For(ctx, guest.Config{Image: o.Image, Accel: o.Accel, VCPUs: o.VCPUs, Memory: o.Memory, Slots: o.Slots})
	return err
}

func (b *Study) guestOptions(c stack.Configuration) (fleet.Options, error) {
	size, err := b.Spec.Resources(c)
	o := fleet.Options{Image: b.Images.Of(c), Accel: b.Options.Accel, VCPUs: size.VCPUs, Memory: size.Memory, Slots: machines.Slots}
	switch c.Name {
	case bzImage:
		o.Image.Kernel = o.Image.Compressed
	case restored:
		o.Snapshots = b.Snapshots()
	}
	return o, err
}

// Execute starts one guest or four, logs in, and kills them.
func (b *Study) Execute(ctx context.Context, e experiment.Execution) (_ experiment.Outcome, err error) {
	o, err := b.guestOptions(e.Configuration)
	if err != nil {
		return experiment.Outcome{}, err
	}
	guests := make([]started, 1)
	if e.Case.Probe == experiment.ReadyFour {
		guests = make([]started, 4)
	}
	defer func() {
		for _, g := range guests {
			if g.node != nil {
				err = errors.Join(err, g.node.Kill(), b.Lab.RemoveGuest(g.node.Name))
			}
		}
	}()
	options := slices.Repeat([]fleet.Options{o}, len(guests))
	for i := range options {
		options[i].Name = "boot-" + strings.ToLower(rand.Text()[:6])
	}
	begin := time.Now()
	if err := b.Fleet.LaunchAll(ctx, options, func(i int, n *fleet.Node) error {
		guests[i].node = n
		return b.use(ctx, &guests[i], e.Case.Probe != experiment.Boot)
	}); err != nil {
		return experiment.Outcome{}, err
	}
	ready := workload.Value{Metric: "ready", Value: time.Since(begin).Seconds()}
	outcome := experiment.Outcome{Boot: guests[0].boot}
	switch e.Case.Probe {
	case experiment.Boot:
		outcome.Values = bootValues(guests[0].times)
	case experiment.Ready:
		engine := workload.Value{Metric: "engine", Value: guests[0].engine.Seconds()}
		outcome.Values = append(bootValues(guests[0].times), ready, engine)
	default:
		var pids []int
		for _, g := range guests {
			pids = append(pids, g.node.PID)
		}
		memory, err := memoryOf(pids)
		if err != nil {
			return experiment.Outcome{}, err
		}
		outcome.Values = append(memory, ready)
	}
	return outcome, nil
}

// started is a guest of the boot study.
type started struct {
	node   *fleet.Node
	times  guest.BootTimes
	engine time.Duration // from the login until the container engine runs
	boot   string        // ID of its kernel's boot
}

// use logs in to a guest and runs the first command, which starts the container engine if
// it is wanted and does not run.
func (b *Study) use(ctx context.Context, g *started, engine bool) error {
	ssh, times, err := b.Fleet.Login(ctx, g.node)
	if err != nil {
		return err
	}
	g.times = times
	script := "cat /proc/sys/kernel/random/boot_id"
	if engine {
		script += "; /etc/unnest/engine local"
	}
	begin := time.Now()
	id, err := place.Output(ctx, ssh, "sh", "-c", script)
	g.engine, g.boot = time.Since(begin), strings.TrimSpace(string(id))
	return errors.Join(err, ssh.Close())
}

func bootValues(t guest.BootTimes) []workload.Value {
	return []workload.Value{
		{Metric: "total", Value: t.Total.Seconds()},
		{Metric: "firmware", Value: t.Firmware.Seconds()},
		{Metric: "kernel", Value: t.Kernel.Seconds()},
		{Metric: "userspace", Value: t.Userspace.Seconds()},
		{Metric: "ssh", Value: t.SSH.Seconds()},
	}
}

// memoryOf returns the means over processes of the memory that each maps: RSS counts pages that
// processes share for each of them, and PSS divides such pages between them.
func memoryOf(pids []int) ([]workload.Value, error) {
	var rss, pss float64
	for _, pid := range pids {
		process, err := procfs.NewProc(pid)
		if err != nil {
			return nil, fmt.Errorf("read the memory of a guest: %w", err)
		}
		m, err := process.ProcSMapsRollup()
		if err == nil && m.Pss == 0 {
			err = errors.New("the process has ended")
		}
		if err != nil {
			return nil, fmt.Errorf("read the memory of a guest: %w", err)
		}
		rss, pss = rss+float64(m.Rss), pss+float64(m.Pss)
	}
	n := float64(len(pids)) * (1 << 20) // in MiB
	return []workload.Value{{Metric: "memory_rss", Value: rss / n}, {Metric: "memory_pss", Value: pss / n}}, nil
}
