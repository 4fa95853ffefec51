package image

import "testing"

func TestCauseOf(t *testing.T) {
	const dpkg = "Setting up foo\nupdate-alternatives: error: error creating symbolic link 'x': No such file or directory\n" +
		"dpkg: error processing package foo (--configure):\n installed foo package post-installation script returned exit status 2\n" +
		"E: setup failed: E: apt-get --yes install foo failed\nE: mmdebstrap failed to run\n"
	tests := []struct{ text, want string }{
		{dpkg, "update-alternatives: error: error creating symbolic link 'x': No such file or directory | dpkg: error processing package foo (--configure):"},
		{"I: apt-get update\nE: no network\n", "I: apt-get update | E: no network"},
	}
	for _, tt := range tests {
		if got := causeOf(tt.text); got != tt.want {
			t.Errorf("cause of %q: got %q, want %q", tt.text, got, tt.want)
		}
	}
}
