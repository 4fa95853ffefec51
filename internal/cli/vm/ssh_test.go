package vm

import (
	"errors"
	"slices"
	"testing"

	"unnest.io/unnest/internal/cli/usage"
	"unnest.io/unnest/internal/testbed/place"
)

// The end of the guest's command is that of this one, and nothing is said twice.
func TestPassOn(t *testing.T) {
	lost := errors.New("connection lost")
	for _, tt := range []struct {
		name      string
		err, want error
		text      string
	}{
		{"well", nil, nil, ""},
		{"exit code", &place.ExitError{Place: "guest n", Args: []string{"sh"}, Code: 7, Stderr: "no"}, usage.Exit(7), "exit code 7"},
		{"killed", &place.ExitError{Place: "guest n", Args: []string{"sh"}, Code: -1, Stderr: "no"}, nil, "sh on guest n: killed"},
		{"lost", lost, lost, "connection lost"},
	} {
		err := passOn(tt.err)
		if tt.want != nil && !errors.Is(err, tt.want) || (err == nil) != (tt.text == "") || err != nil && err.Error() != tt.text {
			t.Errorf("%s: got %v, want %q", tt.name, err, tt.text)
		}
	}
}

func TestWords(t *testing.T) {
	for _, test := range []struct{ args, want []string }{
		{nil, nil},
		{[]string{"--"}, nil},
		{[]string{"hostname"}, []string{"sh", "-c", "hostname"}},
		{[]string{"--", "hostname; uptime"}, []string{"sh", "-c", "hostname; uptime"}},
		{[]string{"ls", "-l", "/a b"}, []string{"ls", "-l", "/a b"}},
		{[]string{"--", "ls", "--", "-l"}, []string{"ls", "--", "-l"}},
	} {
		if got := words(test.args); !slices.Equal(got, test.want) {
			t.Errorf("words(%q) = %q, want %q", test.args, got, test.want)
		}
	}
}
