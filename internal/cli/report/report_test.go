package report

import (
	"context"
	"testing"

	"github.com/google/go-cmp/cmp"

	"unnest.io/unnest/internal/cli/document"
	"unnest.io/unnest/internal/cli/terminal"
)

func TestNewCmd(t *testing.T) {
	tests := []struct {
		args []string
		want Options
	}{
		{[]string{"dir"}, Options{Dirs: []string{"dir"}}},
		{[]string{"dir", "other"}, Options{Dirs: []string{"dir", "other"}}},
		{[]string{"dir", "--format", "csv", "-o", "x"}, Options{Dirs: []string{"dir"}, Output: document.Output{Format: "csv", File: "x"}}},
		{[]string{"-f", "pkb", "--output", "x", "dir"}, Options{Dirs: []string{"dir"}, Output: document.Output{Format: "pkb", File: "x"}}},
	}
	for _, tt := range tests {
		var got Options
		cmd := NewCmd(terminal.Streams{}, func(_ context.Context, o Options) error { got = o; return nil })
		cmd.SetArgs(tt.args)
		if err := cmd.ExecuteContext(t.Context()); err != nil {
			t.Errorf("%v: %v", tt.args, err)
		}
		tt.want.Output.Samples = true
		if diff := cmp.Diff(tt.want, got); diff != "" {
			t.Errorf("%v: options differ (-want +got):\n%s", tt.args, diff)
		}
	}
}

// On a machine without a desktop, the report is written, and the error says where it is.
func TestOpenWithoutDesktop(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	err := show(t.Context(), "run/report.html")
	if want := "open run/report.html: there is no xdg-open: install xdg-utils, or open the file in a browser"; err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}
