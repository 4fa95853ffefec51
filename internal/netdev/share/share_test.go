package share

import (
	"errors"
	"strings"
	"testing"
)

func TestID(t *testing.T) {
	long := strings.Repeat("p", MaxPod)
	for _, i := range []ID{
		{Volume, "web", "data"}, {Memory, "web", "data"}, {Volume, "a.b_c-D", "0-9"}, {Volume, "web.data", "x"},
		{Memory, long, strings.Repeat("n", MaxName)},
	} {
		if err := i.Validate(); err != nil {
			t.Errorf("%v: %v", i, err)
		}
		if got, ok := ParseID(i.String()); !ok || got != i {
			t.Errorf("%s is read as %+v, %t", i, got, ok)
		}
	}
}

func TestNoID(t *testing.T) {
	for _, i := range []ID{
		{}, {"nic", "web", "data"}, {Volume, "", "data"}, {Volume, "web", ""}, {Volume, "..", "data"}, {Volume, "web", ".."},
		{Volume, "web", "."}, {Volume, "web", "a/b"}, {Volume, "a/b", "data"}, {Volume, "web", "Data"},
		{Volume, "web", "-x"}, {Volume, ".web", "data"}, {Volume, "web", "a\n"}, {Volume, "we b", "data"},
		{Volume, strings.Repeat("p", MaxPod+1), "data"}, {Volume, "web", strings.Repeat("n", MaxName+1)},
	} {
		if err := i.Validate(); !errors.Is(err, ErrName) {
			t.Errorf("%q: got %v", i, err)
		}
		if _, ok := ParseID(i.String()); ok {
			t.Errorf("ParseID accepts %q", i.String())
		}
	}
	if err := (ID{Volume, "web", "a.b"}).Validate(); !errors.Is(err, ErrName) { // its text would be ambiguous
		t.Errorf("a dot: got %v", err)
	}
	for _, text := range []string{"", "volume", "volume.data", "volume..web", "nic1-1", "rp1", "volume.data.web\n"} {
		if i, ok := ParseID(text); ok {
			t.Errorf("%q is read as %+v", text, i)
		}
	}
}
