package compare

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
		{[]string{"a", "b"}, Options{A: "a", B: "b"}},
		{[]string{"a", "b", "--format", "csv", "-o", "x"}, Options{A: "a", B: "b", Output: document.Output{Format: "csv", File: "x"}}},
		{[]string{"-f", "csv", "--output", "x", "a", "b"}, Options{A: "a", B: "b", Output: document.Output{Format: "csv", File: "x"}}},
		{[]string{"--summary", "1,2,3", "4,5,6", "--json"}, Options{A: "1,2,3", B: "4,5,6", Summary: true, Output: document.Output{JSON: true}}},
		{[]string{"--summary", "--", "-1,2,3", "4,5,6"}, Options{A: "-1,2,3", B: "4,5,6", Summary: true}},
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
