package doctor

import (
	"context"
	"strings"

	"unnest/internal/testbed/guest"
)

// virtualization checks what guests run on.
func virtualization(ctx context.Context, p Probes) []Check {
	qemu := require(tool{name: "qemu", program: "qemu-system-x86_64", pkg: "qemu-system-x86"}.check(ctx, p))
	choice, err := p.Accel()
	if err != nil {
		return append(qemu, works("accelerator", "", err, "use --accel tcg"))
	}
	return append(qemu, accelerator(p, choice), nested(p, choice))
}

func accelerator(p Probes, choice guest.Choice) Check {
	c := Check{Name: "accelerator", State: OK, Found: string(choice.Accel) + ": " + choice.Reason}
	if choice.Accel == guest.KVM {
		return c
	}
	c.State = Limited
	c.Remedy = "switch virtualization on in the firmware; on a virtual machine, nested virtualization at its host"
	if p.OpenDevice("/dev/kvm") != nil {
		c.Remedy = "modprobe kvm_intel (or kvm_amd), as root; else " + c.Remedy
	}
	return c
}

// nested checks whether a guest of this machine can have guests.
func nested(p Probes, choice guest.Choice) Check {
	if choice.Accel != guest.KVM {
		return Check{Name: "nested virtualization", State: Limited,
			Found:  "tcg emulates svm: an L2 guest works, slowly",
			Remedy: "see accelerator"}
	}
	for _, module := range []string{"kvm_intel", "kvm_amd"} {
		value, err := p.ReadFile("/sys/module/" + module + "/parameters/nested")
		if err != nil {
			continue // the module of another processor
		}
		value = strings.TrimSpace(value)
		c := Check{Name: "nested virtualization", State: OK, Found: module + " has nested=" + value}
		if value != "1" && value != "Y" {
			c.State = Missing
			c.Remedy = "modprobe -r " + module + " && modprobe " + module + " nested=1"
		}
		return c
	}
	return Check{Name: "nested virtualization", State: Missing,
		Found:  "neither kvm_intel nor kvm_amd has a parameter nested",
		Remedy: "use --accel tcg, which emulates svm"}
}
