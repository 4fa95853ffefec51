package guest

import (
	"errors"
	"runtime"
	"strings"
	"testing"

	"unnest.io/unnest/internal/testbed/image"
)

func TestChooseAccel(t *testing.T) {
	opens := func() error { return nil }
	refuses := func() error { return errors.New("open /dev/kvm: no such device") }
	has := func() (bool, error) { return true, nil }
	hasNot := func() (bool, error) { return false, nil }
	unknown := func() (bool, error) { return false, errors.New("no /proc") }
	tests := []struct {
		name     string
		want     Accel
		open     func() error
		hardware func() (bool, error)
		accel    Accel
		reason   string
	}{
		{"auto with kvm", AccelAuto, opens, has, KVM, "opens"},
		{"empty means auto", "", opens, has, KVM, "opens"},
		{"auto without device", AccelAuto, refuses, has, TCG, "no such device"},
		{"auto with paravirtual kvm", AccelAuto, opens, hasNot, TCG, "neither vmx nor svm"},
		{"auto that cannot judge", AccelAuto, opens, unknown, TCG, "no /proc"},
		{"tcg asked for", TCG, opens, has, TCG, "asked for"},
		{"kvm asked for, paravirtual", KVM, opens, hasNot, KVM, "asked for"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := chooseAccel(tt.want, tt.open, tt.hardware)
			if err != nil || got.Accel != tt.accel || !strings.Contains(got.Reason, tt.reason) {
				t.Errorf("got %+v, %v; want %s because of %q", got, err, tt.accel, tt.reason)
			}
		})
	}
	if _, err := chooseAccel(KVM, refuses, has); !errors.Is(err, ErrAccel) {
		t.Errorf("kvm without device: got %v, want ErrAccel", err)
	}
	if _, err := chooseAccel("xen", opens, has); err == nil {
		t.Error("unknown accelerator: got no error")
	}
}

// Only TCG runs guests of a foreign architecture.
func TestChooseForeign(t *testing.T) {
	foreign := foreignArch()
	tests := []struct {
		want Accel
		got  Accel // empty: an error
		says string
	}{
		{AccelAuto, TCG, "the guest is " + string(foreign)},
		{"", TCG, "this machine " + runtime.GOARCH},
		{TCG, TCG, "asked for"},
		{KVM, "", "the guest is " + string(foreign)},
		{"xen", "", "want auto, kvm or tcg"},
	}
	for _, tt := range tests {
		got, err := ChooseAccelFor(foreign, tt.want)
		if got.Accel != tt.got || (err == nil) != (tt.got != "") {
			t.Errorf("%q: got %+v, %v; want %q", tt.want, got, err, tt.got)
		}
		text := got.Reason
		if err != nil {
			text = err.Error()
		}
		if !strings.Contains(text, tt.says) {
			t.Errorf("%q: %q is not in %q", tt.want, tt.says, text)
		}
	}
	if _, err := ChooseAccelFor(foreign, KVM); !errors.Is(err, ErrAccel) {
		t.Errorf("got %v, want ErrAccel", err)
	}
}

// foreignArch is an architecture that differs from that of this machine.
func foreignArch() image.Arch {
	if runtime.GOARCH == string(image.S390X) {
		return image.AMD64
	}
	return image.S390X
}
