package guest

import (
	"errors"
	"strings"
	"testing"
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
