package bench

import (
	"errors"
	"testing"

	"unnest/internal/place"
)

func TestSaid(t *testing.T) {
	silent := &place.ExitError{Place: "vm", Args: []string{"sh"}, Code: 1}
	loud := &place.ExitError{Place: "vm", Args: []string{"sh"}, Code: 1, Stderr: "no room"}
	lost := errors.New("vm no longer answers")
	tests := []struct {
		err  error
		out  string
		want string
	}{
		{silent, "a\nb\nmkdir: read-only\nc\n", "sh on vm: exit code 1: b | mkdir: read-only | c"},
		{silent, " \n", "sh on vm: exit code 1"},
		{loud, "a\n", "sh on vm: exit code 1: no room"},
		{lost, "a\n", "vm no longer answers"},
	}
	for _, tt := range tests {
		got := said(tt.err, []byte(tt.out))
		if got.Error() != tt.want {
			t.Errorf("output %q: got %q, want %q", tt.out, got, tt.want)
		}
		if !errors.Is(got, tt.err) {
			t.Errorf("output %q: %v does not wrap %v", tt.out, got, tt.err)
		}
	}
}
