package place

import "testing"

func TestLastLines(t *testing.T) {
	tests := []struct {
		text string
		n    int
		want string
	}{
		{"", 3, ""},
		{"\n \r\n", 3, ""},
		{"one", 3, "one"},
		{"one\ntwo\n", 3, "one | two"},
		{"one\n\n  two \r\n\nthree\nfour\n\n", 3, "two | three | four"},
		{"one\ntwo\nthree", 1, "three"},
	}
	for _, tt := range tests {
		if got := LastLines(tt.text, tt.n); got != tt.want {
			t.Errorf("last %d lines of %q: got %q, want %q", tt.n, tt.text, got, tt.want)
		}
	}
}
