package bench

import (
	"context"
	"crypto/rand"
	"errors"
	"strings"

	"unnest/internal/measure/experiment"
	"unnest/internal/measure/stack"
	"unnest/internal/measure/workload"
	"unnest/internal/testbed/fleet"
	"unnest/internal/testbed/guest"
	"unnest/internal/testbed/place"
)

// The configurations of the boot study are named after kernel files.
const (
	elfKernel = "vmlinux" // uncompressed, as Unnest boots it
	bzImage   = "bzImage" // compressed, as Debian ships it
)

// boots is the study of the boot of guests, one at a time.
type boots struct{ *Bench }

func (b *boots) check(c stack.Configuration) error {
	switch {
	case c.Name != elfKernel && c.Name != bzImage:
		return errors.New("probe boot compares the kernels " + elfKernel + " and " + bzImage + ": use these names")
	case c.Stack.String() != "vm" || c.Architecture() != stack.X8664:
		return errors.New("probe boot needs stack vm and arch " + string(stack.X8664))
	}
	return nil
}

func (b *boots) needs() needs { return needs{} }

func (b *boots) begin(ctx context.Context) error { return b.findTool(ctx, place.Local{}, qemuBinary) }

func (b *boots) start(context.Context, stack.Configuration) error { return nil }

// Execute boots one guest, logs in and kills it.
func (b *boots) Execute(ctx context.Context, e experiment.Execution) (_ experiment.Outcome, err error) {
	image := b.images.inner
	if e.Configuration.Name == bzImage {
		image.Kernel = image.Compressed
	}
	size, err := b.spec.Resources(e.Configuration)
	if err != nil {
		return experiment.Outcome{}, err
	}
	n, err := b.fleet.Launch(ctx, fleet.Options{
		Name: "boot-" + strings.ToLower(rand.Text()[:6]), Image: image, Accel: b.options.Accel,
		VCPUs: size.VCPUs, Memory: size.Memory, Slots: slots,
	})
	if err != nil {
		return experiment.Outcome{}, err
	}
	defer func() { err = errors.Join(err, n.Kill(), b.lab.RemoveGuest(n.Name)) }()
	ssh, times, err := b.fleet.Login(ctx, n)
	if err != nil {
		return experiment.Outcome{}, err
	}
	defer func() { err = errors.Join(err, ssh.Close()) }()
	id, err := place.Output(ctx, ssh, "cat", "/proc/sys/kernel/random/boot_id")
	return experiment.Outcome{Values: bootValues(times), Boot: strings.TrimSpace(string(id))}, err
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
