package hostd

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"unnest/internal/cli/terminal"
)

func TestNewCmd(t *testing.T) {
	for _, tt := range []struct {
		args []string
		want Options
	}{
		{[]string{"--state", "d"}, Options{State: "d", Listen: DefaultListen}},
		{[]string{"--state=d", "--listen", "127.0.0.1:0", "-v"}, Options{State: "d", Listen: "127.0.0.1:0", Verbose: true}},
	} {
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

func TestWrongLines(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		args []string
		want string
	}{
		{nil, "missing flag --state: want the state directory of the lab"},
		{[]string{"--state", dir, "x"}, `unexpected argument "x"`},
		{[]string{"--state", filepath.Join(dir, "nowhere")}, "open state directory: "},
		{[]string{"--state", file}, "is a file"},
		{[]string{"--state", dir, "--listen", "7443"}, `listen on "7443": want IP-ADDRESS:PORT`},
	} {
		var stderr bytes.Buffer
		cmd := NewCmd(terminal.Streams{Err: &stderr}, nil)
		cmd.SilenceErrors, cmd.SilenceUsage = true, true
		cmd.SetArgs(tt.args)
		err := cmd.ExecuteContext(t.Context())
		if err == nil || !strings.Contains(err.Error(), tt.want) || strings.Contains(err.Error(), "\n") || stderr.Len() > 0 {
			t.Errorf("%v: got %v and %q, want one line with %q", tt.args, err, &stderr, tt.want)
		}
	}
}

func TestServesUntilItIsTold(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	stderr := &watched{wait: "hostd: serving on 127.0.0.1:", seen: cancel}
	cmd := NewCmd(terminal.Streams{Err: stderr}, nil)
	cmd.SetArgs([]string{"--state", t.TempDir(), "--listen", "127.0.0.1:0"})
	if err := cmd.ExecuteContext(ctx); err != nil {
		t.Error(err)
	}
}

// watched calls seen when a line begins with wait.
type watched struct {
	wait string
	seen func()
}

func (w *watched) Write(p []byte) (int, error) {
	if strings.HasPrefix(string(p), w.wait) {
		w.seen()
	}
	return len(p), nil
}
