package vm

import (
	"slices"
	"testing"
)

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
