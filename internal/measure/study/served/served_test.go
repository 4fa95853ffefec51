package served

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"unnest.io/unnest/internal/measure/benchtest"
	"unnest.io/unnest/internal/measure/experiment"
	"unnest.io/unnest/internal/measure/machines"
	"unnest.io/unnest/internal/measure/machines/machine"
	"unnest.io/unnest/internal/measure/result"
	"unnest.io/unnest/internal/measure/stack"
	"unnest.io/unnest/internal/measure/study/scripts"
	"unnest.io/unnest/internal/measure/suite"
	"unnest.io/unnest/internal/measure/workload"
	"unnest.io/unnest/internal/testbed/place"
)

// text returns a script that is always the same.
func text(s string) suite.Script {
	return func(suite.Profile, suite.Resources) string { return s + "\n" }
}

// servedCase is a case with a server that is a shell.
func servedCase(server, load string) experiment.Case {
	return experiment.Case{
		Case:    result.Case{Suite: "application", Name: "echo"},
		Timeout: time.Minute,
		Local: &suite.Case{
			Tools:  []string{"sh"},
			Server: &suite.Server{Start: text(server), Ready: "started well", Broken: []string{"started with errors"}},
			Run:    text(load),
			Parse: func(out []byte) ([]workload.Value, error) {
				if string(out) != "good\n" {
					return nil, fmt.Errorf("answer %q", out)
				}
				return []workload.Value{{Metric: "throughput", Value: 3}}, nil
			},
			Intervals: func([]byte) map[string][]float64 { return map[string][]float64{"throughput": {2, 4}} },
		},
	}
}

// executeServed executes a case once, on this machine.
func executeServed(t *testing.T, k experiment.Case) (experiment.Outcome, error) {
	t.Helper()
	c := stack.Configuration{Name: "metal.local", Stack: stack.Stack{stack.Metal}, Drive: stack.Local}
	b := &machines.Set{Spec: &experiment.Spec{Configurations: []stack.Configuration{c}, Cases: []experiment.Case{k}, Guest: experiment.Guest{VCPUs: 1, Memory: 1 << 30}}}
	s := New(b)
	w := &scripts.Workspace{Machine: &machine.Machine{Place: place.Local{}, Boot: "boot"}, Place: place.Local{}, Dir: t.TempDir(), Unsupported: map[string]error{}}
	s.Workspaces[c.Name] = w
	return s.Execute(t.Context(), experiment.Execution{Configuration: c, Case: k})
}

// The server runs while it is loaded, and no longer.
func TestServedExecute(t *testing.T) {
	dir := t.TempDir()
	mark := filepath.Join(dir, "pid")
	outcome, err := executeServed(t, servedCase(
		`echo $$ >`+mark+`; echo "started well on $PORT"; exec sleep 1000`,
		`kill -0 $(cat `+mark+`) && [ "$PORT" = 5001 ] && [ "$ADDRESS" = 127.0.0.1 ] && echo good`))
	if err != nil {
		t.Fatal(err)
	}
	if len(outcome.Values) != 2 || outcome.Values[1].Metric != suite.ServerStart.Name || !(outcome.Values[1].Value > 0) || outcome.Boot != "boot" {
		t.Errorf("outcome %+v", outcome)
	}
	if got := fmt.Sprint(outcome.Intervals["throughput"]); got != "[2 4]" {
		t.Errorf("intervals %s", got)
	}
	pid, err := os.ReadFile(mark)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat("/proc/" + strings.TrimSpace(string(pid))); err == nil {
		t.Error("the server runs after its load")
	}
}

// What goes wrong is one line that names the cause.
func TestServedFailures(t *testing.T) {
	for _, tt := range []struct{ name, server, load, want string }{
		{"refuses", `echo "unnest: java is version 11: the server needs Java 17"; exit 1`, "", "start the server: it ended at once: java is version 11: the server needs Java 17"},
		{"with errors", `echo "12:00 ERROR [jpa] no database"; echo "12:01 ERROR later"; echo "started with errors"; sleep 1000`, "",
			`start the server: it has started with errors; the server's log has "12:00 ERROR [jpa] no database"`},
		{"ends", "echo warning; echo out of handles; exit 3", "", "start the server: it ended at once: sh on this host: exit code 3: warning | out of handles"},
		{"full disk", `echo "x ERROR y"; echo "java.io.IOException: No space left on device"; echo "started well"; exec sleep 1000`, "echo bad",
			`answer "bad\n"; the server's log has "java.io.IOException: No space left on device"`},
		{"load fails", `echo "started well"; exec sleep 1000`, "echo no route >&2; exit 1", "exit code 1: no route"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, err := executeServed(t, servedCase(tt.server, tt.load))
			if err == nil || !strings.Contains(err.Error(), tt.want) || strings.Contains(err.Error(), "\n") {
				t.Errorf("got %v, want %q", err, tt.want)
			}
		})
	}
}

// The end of an execution ends a server that has not started.
func TestServedEndsWithItsContext(t *testing.T) {
	k := servedCase("exec sleep 1000", "")
	w := &scripts.Workspace{Machine: &machine.Machine{Place: place.Local{}}, Place: place.Local{}, Dir: t.TempDir()}
	ctx, cancel := context.WithCancelCause(t.Context())
	late := errors.New("too late")
	time.AfterFunc(100*time.Millisecond, func() { cancel(late) })
	if _, err := serve(ctx, w, k, k.Local.Server.Start("", suite.Resources{})); !errors.Is(err, late) {
		t.Errorf("got %v, want %v", err, late)
	}
}

// The scripts of the application refuse what cannot work, before they start Java.
func TestTradeServeRefuses(t *testing.T) {
	script, err := filepath.Abs("../../../../apps/trade/bundle/files/serve")
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	taken := fmt.Sprint(l.Addr().(*net.TCPAddr).Port)
	java := func(version string) string {
		home := t.TempDir()
		benchtest.Write(t, filepath.Join(home, "release"), "JAVA_VERSION=\""+version+"\"\n")
		if err := os.Mkdir(filepath.Join(home, "bin"), 0o700); err != nil {
			t.Fatal(err)
		}
		benchtest.Write(t, filepath.Join(home, "bin/java"), "#!/bin/sh\nexit 9\n")
		if err := os.Chmod(filepath.Join(home, "bin/java"), 0o700); err != nil {
			t.Fatal(err)
		}
		return filepath.Join(home, "bin")
	}
	for _, tt := range []struct{ name, path, port, free, want string }{
		{"no java", "", "1", "1", "there is no java"},
		{"old java", java("11.0.2"), "1", "1", "java is version 11: the server needs Java 17"},
		{"port", java("17.0.15"), taken, "1", "port " + taken + " is in use by another program"},
		{"disk", java("17.0.15"), "1", "999999999999", "MiB free: make room for 999999999999 MiB"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir := toolsWithoutJava(t)
			k := servedCase("", "")
			w := &scripts.Workspace{Machine: &machine.Machine{Place: place.Local{}}, Place: place.Local{}, Dir: t.TempDir()}
			_, err := serve(t.Context(), w, k, fmt.Sprintf("export PATH=%s:%s UNNEST_TRADE_FREE_MIB=%s\nexec %s %s\n", tt.path, dir, tt.free, script, tt.port))
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v, want %q", err, tt.want)
			}
		})
	}
}

// toolsWithoutJava returns a directory with the programs that the script uses.
func toolsWithoutJava(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for _, name := range []string{"dirname", "readlink", "sed", "grep", "df", "awk", "rm", "mkdir", "cp"} {
		path := "/bin/" + name
		if _, err := os.Stat(path); err != nil {
			path = "/usr/bin/" + name
		}
		if err := os.Symlink(path, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// The server runs in domains of Xen. This host reaches those of one host of the user's.
func TestServedInXen(t *testing.T) {
	xenAt := func(host string, from stack.Drive) stack.Configuration {
		return stack.Configuration{Name: string(from), Stack: stack.Stack{stack.XenPV}, Host: host, Drive: from}
	}
	own, one, other := "", "ssh://192.0.2.1", "ssh://192.0.2.2"
	for _, tt := range []struct {
		all  []stack.Configuration
		want string
	}{
		{[]stack.Configuration{xenAt(own, stack.Local), xenAt(own, stack.Remote)}, ""},
		{[]stack.Configuration{xenAt(one, stack.Local), xenAt(one, stack.Remote)}, ""},
		{[]stack.Configuration{xenAt(one, stack.Remote), xenAt(other, stack.Local)}, ""},
		{[]stack.Configuration{xenAt(one, stack.Remote), xenAt(other, stack.Remote)}, "clients reach those of one Xen host at a time"},
	} {
		s := New(&machines.Set{Spec: &experiment.Spec{Configurations: tt.all}})
		err := s.Check(tt.all[0])
		if (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%v: got %v, want %q", tt.all, err, tt.want)
		}
	}
}
