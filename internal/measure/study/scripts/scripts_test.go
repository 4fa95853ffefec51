package scripts

import (
	"errors"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"unnest.io/unnest/internal/measure/benchtest"
	"unnest.io/unnest/internal/measure/experiment"
	"unnest.io/unnest/internal/measure/machines"
	"unnest.io/unnest/internal/measure/stack"
	"unnest.io/unnest/internal/testbed/place"
)

func TestWithOutput(t *testing.T) {
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
		got := WithOutput(tt.err, []byte(tt.out))
		if got.Error() != tt.want {
			t.Errorf("output %q: got %q, want %q", tt.out, got, tt.want)
		}
		if !errors.Is(got, tt.err) {
			t.Errorf("output %q: %v does not wrap %v", tt.out, got, tt.err)
		}
	}
}

// A bash that sshd has started reads no bashrc: its output and errors would be taken
// for the tool's.
func TestRunReadsNoBashrc(t *testing.T) {
	home := t.TempDir()
	benchtest.Write(t, filepath.Join(home, ".bashrc"), "echo bashrc; echo bashrc >&2; exit 3\n")
	sshd := []string{"HOME=" + home, "SSH_CLIENT=192.0.2.1 1 22", "SHLVL=0"}
	if out, err := exec.Command("env", append(sshd, "bash", "-c", "echo script")...).Output(); err == nil && string(out) == "script\n" {
		t.Fatal("this bash reads no bashrc at all: the test shows nothing")
	}
	s := &Workspace{Place: place.Within{Place: place.Local{}, Env: sshd}, Dir: t.TempDir()}
	out, err := s.Run(t.Context(), experiment.Case{}, "pwd")
	if err != nil || string(out) != s.Dir+"\n" {
		t.Errorf("got %q, %v; want the directory of the case alone", out, err)
	}
	_, err = s.Run(t.Context(), experiment.Case{}, "echo 'tool: no such file' >&2; false")
	var exit *place.ExitError
	if !errors.As(err, &exit) || exit.Stderr != "tool: no such file" {
		t.Errorf("got %v; want the output of the tool only", err)
	}
}

// Guests of another architecture have packages of their own, and so have containers on a user's host.
func TestAsks(t *testing.T) {
	vm, contained := stack.Stack{stack.VM}, stack.Stack{stack.VM, stack.Containerd}
	all := []stack.Configuration{
		{Name: "s390x", Stack: vm, Arch: stack.S390x},
		{Name: "x86", Stack: vm},
		{Name: "contained", Stack: contained},
		{Name: "trixie", Stack: contained, Release: stack.Trixie},
		{Name: "remote", Stack: stack.Stack{stack.SSH}, Host: "ssh://h"},
		{Name: "contained there", Stack: stack.Stack{stack.SSH, stack.Docker}, Host: "ssh://h"},
	}
	s, got := New(machines.New(&experiment.Spec{Configurations: all}, machines.Options{})), ""
	for _, c := range all {
		if s.asks(c) {
			got += c.Name + ";"
		}
	}
	if want := "s390x;x86;trixie;contained there;"; got != want {
		t.Errorf("got %s want %s", got, want)
	}
}

func TestCheckScripts(t *testing.T) {
	for _, tt := range []struct {
		configuration stack.Configuration
		want          string // in the error; empty: none
	}{
		{stack.Configuration{Stack: stack.Stack{stack.SSH}, Host: "ssh://h"}, ""},
		{stack.Configuration{Stack: stack.Stack{stack.SSH, stack.Containerd}, Storage: stack.Overlay, Host: "ssh://h"}, ""},
		{stack.Configuration{Stack: stack.Stack{stack.SSH, stack.Docker}, Storage: stack.Volume, Network: stack.HostNetwork, Host: "ssh://h"}, ""},
		{stack.Configuration{Stack: stack.Stack{stack.SSH, stack.Docker}, Network: stack.NAT, Host: "ssh://h"}, "network nat: cases of suites do not leave their machine"},
		{stack.Configuration{Stack: stack.Stack{stack.VM}, Arch: stack.S390x}, ""},
		{stack.Configuration{Stack: stack.Stack{stack.VM, stack.Containerd}, Arch: stack.S390x}, "arch s390x: its guests run no containers"},
	} {
		err := (&Study{}).Check(tt.configuration)
		if tt.want == "" && err != nil || tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)) {
			t.Errorf("%s: got %v, want %q", tt.configuration.Notation(), err, tt.want)
		}
	}
}
