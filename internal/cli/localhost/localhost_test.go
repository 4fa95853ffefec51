package localhost_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"strings"
	"testing"

	"unnest.io/unnest/docs/schemas"
	"unnest.io/unnest/internal/check/localhost"
	cli "unnest.io/unnest/internal/cli/localhost"
)

var update = flag.Bool("update", false, "rewrite the schema of the JSON")

// TestMain acts as an agent if the test binary is called as one.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && (os.Args[1] == "agent" || os.Args[1] == "serve") {
		os.Exit(cli.Main(os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
	}
	os.Exit(m.Run())
}

func run(args ...string) (stdout, stderr string, exit int) {
	var o, e bytes.Buffer
	exit = cli.Main(args, strings.NewReader(""), &o, &e)
	return o.String(), e.String(), exit
}

func TestWrongUsage(t *testing.T) {
	for want, args := range map[string][]string{
		"want the command check or agent":     {},
		`unknown command "fly"`:               {"fly"},
		"agent: want no arguments":            {"agent", "now"},
		"serve: want one request":             {"serve"},
		"want at least 2 fractions, got 0":    {"check"},
		"want at least 2 fractions, got 1":    {"check", "--fraction", "a"},
		"the command is empty":                {"check", "--fraction", " "},
		`unexpected argument "f1"`:            {"check", "--fraction", "ip", "f1"},
		"missing closing":                     {"check", "--run", "("},
		"not defined":                         {"check", "--colour"},
		`invalid value "soon" for flag -pati`: {"check", "--patience", "soon"},
		`want a time of more than 0`:          {"check", "--patience", "-1s"},
	} {
		stdout, stderr, exit := run(args...)
		if exit != 2 || stdout != "" || !strings.Contains(stderr, want) || strings.Count(stderr, "\n") != 1 {
			t.Errorf("%q: exit %d, stdout %q, stderr %q, want %q", args, exit, stdout, stderr, want)
		}
	}
}

func TestHelpAndList(t *testing.T) {
	for _, args := range [][]string{{"--help"}, {"help"}, {"check", "--help"}} {
		stdout, stderr, exit := run(args...)
		for _, want := range []string{"ip netns exec f1 unnest-localhost agent", "-patience", "-strict", "-skip"} {
			if exit != 0 || stderr != "" || !strings.Contains(stdout, want) {
				t.Errorf("%q: exit %d, %q is not in\n%s", args, exit, want, stdout)
			}
		}
	}
	if stdout, _, exit := run("check", "--list"); exit != 0 || stdout != strings.Join(localhost.Names(), "\n")+"\n" {
		t.Errorf("exit %d: %s", exit, stdout)
	}
}

// fractions returns flags for n agents on this machine's loopback. The cases of these tests
// bind only ports that the kernel chooses.
func fractions(t *testing.T, n int) []string {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	args := []string{"check"}
	for range n {
		args = append(args, "--fraction", "PATH=/nowhere exec '"+exe+"' agent")
	}
	return args
}

func TestCheck(t *testing.T) {
	for _, c := range []struct {
		args []string
		exit int
		want []string
		not  string
	}{
		{[]string{"--run", "ipv4/.*(port-0|conflict)", "--skip", "conflict"}, 0,
			[]string{"pass      bind/ipv4/listeners-on-port-0-never-share-a-port ", "\npass      bind/ipv4/sockets-on-port-0-", "\n2 passed, 0 failed, 0 not there\n"}, "conflict"},
		{[]string{"--run", "ipv4/redis-|ipv4/curl.*nginx"}, 0,
			[]string{"not there programs/ipv4/redis-stores-and-tells ", "  redis-server in fraction 1\n", "0 passed, 0 failed, 2 not there\n"}, "FAIL"},
		{[]string{"--run", "ipv4/redis-", "--strict"}, 1, []string{"0 passed, 0 failed, 1 not there\n"}, "FAIL"},
		{[]string{"--run", "ipv4/redis-", "--json"}, 0,
			[]string{`{"case":"programs/ipv4/redis-stores-and-tells","verdict":"not there","not_there":"redis-server in fraction 1","duration_ns":`,
				`{"summary":{"pass":0,"fail":0,"not_there":1}}` + "\n"}, "FAIL"},
	} {
		stdout, stderr, exit := run(append(fractions(t, 2), c.args...)...)
		if exit != c.exit || stderr != "" || strings.Contains(stdout, c.not) {
			t.Errorf("%q: exit %d, stderr %q, stdout\n%s", c.args, exit, stderr, stdout)
		}
		for _, w := range c.want {
			if !strings.Contains(stdout, w) {
				t.Errorf("%q: %q is not in\n%s", c.args, w, stdout)
			}
		}
	}
}

func TestNoCaseMatches(t *testing.T) {
	stdout, stderr, exit := run(append(fractions(t, 2), "--run", "^sctp/")...)
	if exit != 2 || !strings.Contains(stderr, "no case matches") {
		t.Errorf("exit %d, stderr %q, stdout %q", exit, stderr, stdout)
	}
}

// If a fraction cannot be reached, the run ends with an error that contains its output.
func TestCommandThatFails(t *testing.T) {
	_, stderr, exit := run(append(fractions(t, 1), "--fraction", "echo no such guest >&2; exit 4")...)
	if exit != 1 || !strings.Contains(stderr, "fraction 2: ") || !strings.Contains(stderr, "no such guest") {
		t.Errorf("exit %d, stderr %q", exit, stderr)
	}
}

// A failed case prints a line with the reason, or a JSON object, and the exit code is 1.
func TestFailure(t *testing.T) {
	if os.Getenv("UNNEST_PRIVILEGED") != "1" {
		t.Skip("needs root: set UNNEST_PRIVILEGED=1")
	}
	args := fractions(t, 1)
	args = append(args, "--fraction", "unshare --net sh -c '"+strings.ReplaceAll(args[2], "'", "")+"'", "--run", "^tcp/ipv4/first-of-two", "--patience", "100ms")
	stdout, _, exit := run(args...)
	if exit != 1 || !strings.HasPrefix(stdout, "FAIL      tcp/ipv4/first-of-two-clients-on-one-fixed-port-goes-on ") || !strings.HasSuffix(stdout, "\n0 passed, 1 failed, 0 not there\n") {
		t.Errorf("exit %d, stdout %s", exit, stdout)
	}
	stdout, _, _ = run(append(args, "--json")...)
	first, _, _ := strings.Cut(stdout, "\n")
	o := schemas.Output{Name: "localhost", Title: "unnest-localhost check --json: each line but the last", Value: cli.Line{}}
	if err := o.Test("../../..", *update, []byte(first)); err != nil {
		t.Error(err)
	}
	var got cli.Line
	if err := json.Unmarshal([]byte(first), &got); err != nil || got.Verdict != localhost.Fail || !strings.Contains(got.Error, "fraction 2: ") {
		t.Errorf("got %+v, %v of %s", got, err, stdout)
	}
}
