package guest

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"

	"unnest.io/unnest/internal/testbed/image"
)

// Accel is a QEMU accelerator.
type Accel string

// The accelerators that guests run with.
const (
	AccelAuto Accel = "auto" // KVM where it can run a stock kernel, else TCG
	KVM       Accel = "kvm"
	TCG       Accel = "tcg"
)

// Choice is an accelerator and the reason for it, a clause that can be printed next to
// figures.
type Choice struct {
	Accel  Accel
	Reason string
}

// ErrAccel is the error for an accelerator that is not available.
var ErrAccel = errors.New("accelerator not available")

// ChooseAccel resolves want on this machine. Auto selects KVM only if /dev/kvm opens
// and the processor shows hardware virtualization: a paravirtual KVM, such as PVM, runs
// only kernels made for it and hangs on those of distributions. An explicit kvm skips
// the second test.
func ChooseAccel(want Accel) (Choice, error) {
	return chooseAccel(want, func() error { return OpenDevice("/dev/kvm") }, hardwareVirtualization)
}

// ChooseAccelFor resolves want for a guest of an architecture on this machine, as
// ChooseAccel does. Only TCG runs a foreign architecture.
func ChooseAccelFor(a image.Arch, want Accel) (Choice, error) {
	if a.OrAMD64() == image.Arch(runtime.GOARCH) {
		return ChooseAccel(want)
	}
	return chooseForeign(want, a.OrAMD64())
}

func chooseForeign(want Accel, a image.Arch) (Choice, error) {
	switch want {
	case AccelAuto, "":
		return Choice{TCG, fmt.Sprintf("the guest is %s, this machine %s", a, runtime.GOARCH)}, nil
	case KVM:
		return Choice{}, fmt.Errorf("%w: kvm: the guest is %s, this machine %s; use --accel auto or tcg", ErrAccel, a, runtime.GOARCH)
	}
	return chooseAccel(want, nil, nil)
}

func chooseAccel(want Accel, open func() error, hardware func() (bool, error)) (Choice, error) {
	switch want {
	case TCG:
		return Choice{TCG, "asked for"}, nil
	case KVM:
		if err := open(); err != nil {
			return Choice{}, fmt.Errorf("%w: kvm: %w; use --accel auto or tcg", ErrAccel, err)
		}
		return Choice{KVM, "asked for"}, nil
	case AccelAuto, "":
		if err := open(); err != nil {
			return Choice{TCG, fmt.Sprintf("KVM cannot be used: %v", err)}, nil
		}
		ok, err := hardware()
		if err != nil {
			return Choice{TCG, fmt.Sprintf("KVM cannot be checked: %v", err)}, nil
		}
		if !ok {
			return Choice{TCG, "/dev/kvm opens, but the processor shows neither vmx nor svm, so a stock kernel would not run"}, nil
		}
		return Choice{KVM, "/dev/kvm opens"}, nil
	}
	return Choice{}, fmt.Errorf("accelerator %q: want auto, kvm or tcg", string(want))
}

// OpenDevice opens a device for reading and writing, and closes it.
func OpenDevice(path string) error {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	return f.Close()
}

// hardwareVirtualization reports whether the processor offers hardware virtualization
// to this kernel. Only x86 has processor flags for it; elsewhere it is enough that
// /dev/kvm opens.
func hardwareVirtualization() (bool, error) {
	if runtime.GOARCH != "amd64" {
		return true, nil
	}
	content, err := os.ReadFile("/proc/cpuinfo")
	if err != nil {
		return false, err
	}
	for line := range strings.Lines(string(content)) {
		if key, value, _ := strings.Cut(line, ":"); strings.TrimSpace(key) == "flags" {
			flags := strings.Fields(value)
			return slices.Contains(flags, "vmx") || slices.Contains(flags, "svm"), nil
		}
	}
	return false, nil
}
