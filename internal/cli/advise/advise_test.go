package advise

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
		{[]string{"runs/a"}, Options{Dir: "runs/a"}},
		{[]string{"runs/a", "--json"}, Options{Dir: "runs/a", Output: document.Output{JSON: true}}},
		{[]string{"runs/a", "--format", "csv", "-o", "x"}, Options{Dir: "runs/a", Output: document.Output{Format: "csv", File: "x"}}},
	}
	for _, tt := range tests {
		var got Options
		cmd := NewCmd(terminal.Streams{}, func(_ context.Context, o Options) error { got = o; return nil })
		cmd.SetArgs(tt.args)
		if err := cmd.ExecuteContext(t.Context()); err != nil {
			t.Errorf("%v: %v", tt.args, err)
		}
		if diff := cmp.Diff(tt.want, got); diff != "" {
			t.Errorf("%v: options differ (-want +got):\n%s", tt.args, diff)
		}
	}
}
