package bench

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"time"

	"unnest/internal/measure/experiment"
	"unnest/internal/measure/result"
	"unnest/internal/measure/stack"
	"unnest/internal/measure/workload"
	"unnest/internal/testbed/fleet"
	"unnest/internal/testbed/guest"
	"unnest/internal/testbed/lab"
	"unnest/internal/testbed/place"
)

// The configurations of the boot study: the kernel as Unnest starts it, and as
// Debian ships it.
const (
	elfKernel = "vmlinux"
	bzImage   = "bzImage"
)

// BootSpec is the study of the time from launch to ready: a guest is booted
// again and again, its kernel uncompressed ahead of time or by itself.
func BootSpec() *experiment.Spec {
	metrics := []result.Metric{{Name: "total", Unit: "s", Order: result.LIB}}
	for _, part := range []string{"firmware", "kernel", "userspace", "ssh"} {
		metrics = append(metrics, result.Metric{Name: part, Unit: "s", Order: result.LIB})
	}
	return &experiment.Spec{
		Name: "boot", Title: "From the launch of a guest to the first command in it", Suite: "boot",
		Description: "A guest with 1 vCPU and 1 GiB is booted until a login over SSH succeeds. Its kernel is the ELF file\n" +
			"that the guest image keeps (vmlinux), or the compressed image that Debian ships (bzImage).",
		Baselines: []string{bzImage},
		Guest:     experiment.Guest{VCPUs: 1, Memory: 1 << 30},
		Configurations: []stack.Configuration{
			{Name: bzImage, Stack: stack.Stack{stack.VM}}, {Name: elfKernel, Stack: stack.Stack{stack.VM}},
		},
		Cases: []experiment.Case{{
			Case: result.Case{
				Suite: "boot", Name: "boot", Group: "boot", Title: "Boot", Tool: "qemu-system-x86_64",
				Primary: "total", Metrics: metrics,
			},
			Wall: 10 * time.Second, Timeout: 2 * time.Minute,
		}},
		Repetitions: 10, Warmup: 1, Retries: 1,
	}
}

// Booter boots guests, one at a time, as an experiment.
type Booter struct {
	facts Facts
	image guest.Image
	fleet *fleet.Fleet
	spec  *experiment.Spec
	accel guest.Accel
}

// UpBooter brings the boot study up.
func UpBooter(ctx context.Context, spec *experiment.Spec, o Options) (Running, error) {
	o.Progress.Phase("make the guest image")
	image, err := BuildImage(ctx, o.Programs, o.Progress.Phase)
	if err != nil {
		return nil, err
	}
	version, err := exec.CommandContext(ctx, "qemu-system-x86_64", "--version").Output()
	if err != nil {
		return nil, fmt.Errorf("find the version of QEMU: %w", err)
	}
	l, err := lab.Create(o.Lab)
	if err != nil {
		return nil, err
	}
	f, err := fleet.Open(l)
	if err != nil {
		return nil, errors.Join(err, l.Close())
	}
	facts := Facts{Image: image.Digest, Tools: map[string]string{"qemu-system-x86_64": versionNumber.FindString(string(version))}}
	return &Booter{facts, image, f, spec, o.Accel}, nil
}

// Facts says with what the study is made.
func (b *Booter) Facts() Facts { return b.facts }

// Down removes the lab, with the guest if one is left.
func (b *Booter) Down() error { return b.fleet.Lab.Close() }

// Execute boots one guest and kills it.
func (b *Booter) Execute(ctx context.Context, e experiment.Execution) (_ experiment.Outcome, err error) {
	image := b.image
	if e.Configuration.Name == bzImage {
		image.Kernel = image.Compressed
	}
	n, err := b.fleet.Launch(ctx, fleet.Options{
		Name: "boot-" + strings.ToLower(rand.Text()[:6]), Image: image, Accel: b.accel,
		VCPUs: b.spec.Guest.VCPUs, Memory: b.spec.Guest.Memory, Slots: slots,
	})
	if err != nil {
		return experiment.Outcome{}, err
	}
	defer func() { err = errors.Join(err, n.Kill(), b.fleet.Remove(n.Name)) }()
	ssh, times, err := b.fleet.Login(ctx, n)
	if err != nil {
		return experiment.Outcome{}, err
	}
	defer func() { err = errors.Join(err, ssh.Close()) }()
	id, err := place.Output(ctx, ssh, "cat", "/proc/sys/kernel/random/boot_id")
	if err != nil {
		return experiment.Outcome{}, err
	}
	return experiment.Outcome{Values: bootValues(times), Boot: strings.TrimSpace(string(id))}, nil
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
