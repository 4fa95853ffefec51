package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/spf13/cobra"

	"unnest.io/unnest/internal/cli/terminal"
	"unnest.io/unnest/internal/cli/usage"
)

func TestExecute(t *testing.T) {
	stopped, cancel := context.WithCancelCause(context.Background())
	cancel(interrupted{syscall.SIGINT})
	tests := []struct {
		name   string
		ctx    context.Context
		err    error
		code   int
		stderr string
	}{
		{"done", t.Context(), nil, 0, ""},
		{"done although interrupted", stopped, nil, 0, ""},
		{"failed", t.Context(), errors.New("read x: broken"), 1, "unnest: read x: broken\n"},
		{"failed twice", t.Context(), errors.Join(errors.New("run"), errors.New("undo")), 1, "unnest: run; undo\n"},
		{"wrong usage", t.Context(), fmt.Errorf("x: %w", usage.Errorf("no case %q", "y")), 2, "unnest: x: no case \"y\"\nsee unnest x --help\n"},
		{"an exit code that a command passes on", t.Context(), errors.Join(usage.Exit(7), nil), 7, ""},
		{"interrupted", stopped, context.Canceled, 130, "unnest: interrupted\n"},
		{"interrupted by cause", stopped, context.Cause(stopped), 130, "unnest: interrupted\n"},
		{"interrupted while undoing", stopped, fmt.Errorf("undo: %w", errors.New("no")), 130, "unnest: undo: no\n"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var out, stderr bytes.Buffer
			root := newRootCmd(terminal.Streams{Out: &out, Err: &stderr})
			root.AddCommand(&cobra.Command{Use: "x", RunE: func(*cobra.Command, []string) error { return tt.err }})
			root.SetArgs([]string{"x"})
			if code := execute(tt.ctx, root, &stderr); code != tt.code || stderr.String() != tt.stderr || out.Len() > 0 {
				t.Errorf("got %d, stderr %q, stdout %q; want %d, %q", code, stderr.String(), out.String(), tt.code, tt.stderr)
			}
		})
	}
}

// Programs of /usr/sbin are found, although the PATH of users, cron and su on Debian lacks it.
func TestMainFindsSystemPrograms(t *testing.T) {
	if _, err := os.Stat("/usr/sbin/mkfs.ext4"); err != nil {
		t.Skip("needs /usr/sbin/mkfs.ext4, of Debian's e2fsprogs")
	}
	unnest, err := exec.LookPath("unnest")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{"", "/nowhere"} {
		cmd := exec.CommandContext(t.Context(), unnest, "doctor", "--json")
		cmd.Env = []string{"PATH=" + path, "HOME=" + t.TempDir()}
		if out, _ := cmd.Output(); !strings.Contains(string(out), ", /usr/sbin/mkfs.ext4\"") {
			t.Errorf("PATH=%s:\n%s", path, out)
		}
	}
}

// A group below the root reports wrong usage like the root, and so do its commands.
func TestGroup(t *testing.T) {
	tests := []struct {
		args   []string
		code   int
		stderr string
	}{
		{[]string{"vm"}, 0, ""},
		{[]string{"vm", "start", "--name", "a"}, 0, ""},
		{[]string{"vm", "start"}, 2, "unnest: required flag(s) \"name\" not set\nsee unnest vm start --help\n"},
		{[]string{"vm", "start", "--nam", "a"}, 2, "unnest: unknown flag --nam: did you mean --name?\nsee unnest vm start --help\n"},
		{[]string{"vm", "strat"}, 2, "unnest: unknown command \"strat\": did you mean start?\nsee unnest vm --help\n"},
	}
	for _, tt := range tests {
		var out, stderr bytes.Buffer
		streams := terminal.Streams{Out: &out, Err: &stderr}
		root, vm := &cobra.Command{Use: "unnest", SilenceErrors: true, SilenceUsage: true}, &cobra.Command{Use: "vm"}
		start := &cobra.Command{Use: "start", RunE: func(*cobra.Command, []string) error { return nil }}
		start.Flags().String("name", "", "")
		if err := start.MarkFlagRequired("name"); err != nil {
			t.Fatal(err)
		}
		vm.AddCommand(start)
		root.AddCommand(vm)
		equip(root, streams)
		root.SetArgs(tt.args)
		if code := execute(t.Context(), root, &stderr); code != tt.code || stderr.String() != tt.stderr {
			t.Errorf("%v: got %d, %q; want %d, %q", tt.args, code, stderr.String(), tt.code, tt.stderr)
		}
	}
}

// Every command has help, and none panics without flags. All commands but help and
// version are in a group.
func TestEveryCommandHasHelp(t *testing.T) {
	var visit func(cmd *cobra.Command)
	visit = func(cmd *cobra.Command) {
		if cmd.Short == "" {
			t.Errorf("%s has no help", cmd.CommandPath())
		}
		for _, c := range cmd.Commands() {
			visit(c)
		}
	}
	root := newRootCmd(terminal.Streams{Out: new(bytes.Buffer), Err: new(bytes.Buffer)})
	visit(root)
	for _, c := range root.Commands() {
		if alone := c.Name() == "help" || c.Name() == "version"; alone != (c.GroupID == "") && !c.Hidden {
			t.Errorf("%s is in group %q", c.Name(), c.GroupID)
		}
	}
}

// A warning clears the status line.
func TestWarnClearsStatusLine(t *testing.T) {
	var buf bytes.Buffer
	warn(terminal.Streams{Err: &buf, ErrWidth: 80}, "x")
	if got := buf.String(); got != "\r\x1b[Kunnest: x\n" {
		t.Errorf("got %q", got)
	}
}
