package conformance_test

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"unnest.io/unnest/docs/schemas"
	"unnest.io/unnest/internal/check/cni"
	"unnest.io/unnest/internal/cli/conformance"
)

var update = flag.Bool("update", false, "rewrite the schema of the JSON")

// list writes a network configuration list with a plugin that supports only 1.0.0 and
// fails all other commands. It returns the directory.
func list(t *testing.T) (dir string) {
	t.Helper()
	dir = t.TempDir()
	plugin := `#!/bin/sh
if [ "$CNI_COMMAND" = VERSION ]; then echo '{"cniVersion":"1.0.0","supportedVersions":["1.0.0"]}'; exit; fi
echo '{"cniVersion":"1.0.0","code":100,"msg":"no pods today"}'; exit 1
`
	if err := os.WriteFile(filepath.Join(dir, "broken"), []byte(plugin), 0o755); err != nil {
		t.Fatal(err)
	}
	text := `{"cniVersion":"1.0.0","name":"n","plugins":[{"type":"broken"}]}`
	if err := os.WriteFile(filepath.Join(dir, "n.conflist"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return dir
}

func run(args ...string) (stdout, stderr string, exit int) {
	var o, e bytes.Buffer
	exit = conformance.Main(args, &o, &e)
	return o.String(), e.String(), exit
}

func TestWrongUsage(t *testing.T) {
	dir := list(t)
	conflist, broken := filepath.Join(dir, "n.conflist"), filepath.Join(dir, "broken")
	for want, args := range map[string][]string{
		"want one network configuration list, got 0":             {},
		"list " + broken + ": error parsing":                     {broken},
		"wrong usage: read network":                              {"churn", broken},
		"got 2 arguments":                                        {conflist, conflist},
		"no such file":                                           {filepath.Join(dir, "none")},
		"not defined":                                            {"--colour", conflist},
		`peer "me": want ADDRESS`:                                {"--peer", "me", conflist},
		"missing closing":                                        {"--run", "(", conflist},
		"want one network configuration list, got 3":             {"churn", "a", "b", "c"},
		`"-1" for flag -pods: want a whole number of at least 1`: {"churn", "--pods", "-1", conflist},
		`"x" for flag -spare-links: want a whole number of at`:   {"--spare-links", "x", conflist},
		`"0s" for flag -wait: want a time of more than 0`:        {"--wait", "0s", conflist},
	} {
		stdout, stderr, exit := run(args...)
		if exit != 2 || stdout != "" || !strings.Contains(stderr, want) || strings.Count(stderr, "\n") != 1 {
			t.Errorf("%q: exit %d, stdout %q, stderr %q, want %q", args, exit, stdout, stderr, want)
		}
	}
}

func TestHelpAndList(t *testing.T) {
	if stdout, _, exit := run("--help"); exit != 0 || !strings.Contains(stdout, "-spare-links") || !strings.Contains(stdout, "churn [flags] LIST") {
		t.Errorf("exit %d: %s", exit, stdout)
	}
	if stdout, _, exit := run("--list"); exit != 0 || stdout != strings.Join(cni.Checks(), "\n")+"\n" {
		t.Errorf("exit %d: %s", exit, stdout)
	}
}

func TestPluginThatFails(t *testing.T) {
	if os.Getenv("UNNEST_PRIVILEGED") != "1" {
		t.Skip("needs root: set UNNEST_PRIVILEGED=1")
	}
	dir := list(t)
	for _, c := range []struct {
		args []string
		want []string
	}{
		{nil, []string{"pass        version ", "n/a   1.1.0 version ", "broken does not report 1.1.0", "no pods today", "1 passed, 1 failed, 0 recommendations unmet, 3 not applicable\n"}},
		{[]string{"--json"}, []string{`"check":"warm-up","version":"1.0.0"`, `"verdict":"fail","error":"ADD: `, `{"summary":{"pass":1,"fail":1,"unmet":0,"not_applicable":3}}` + "\n"}},
	} {
		args := append([]string{"--cni-path", dir}, c.args...)
		stdout, stderr, exit := run(append(args, filepath.Join(dir, "n.conflist"))...)
		if exit != 1 || stderr != "" {
			t.Errorf("%q: exit %d, stderr %q", args, exit, stderr)
		}
		for _, w := range c.want {
			if !strings.Contains(stdout, w) {
				t.Errorf("%q: %q is not in\n%s", args, w, stdout)
			}
		}
	}
	stdout, _, _ := run("--json", "--cni-path", dir, filepath.Join(dir, "n.conflist"))
	outcomes, _, _ := strings.Cut(stdout, `{"summary"`)
	o := schemas.Output{Name: "conformance", Title: "unnest-conformance --json: each line but the last", Value: conformance.Line{}}
	if err := o.Test("../../..", *update, []byte(outcomes)); err != nil {
		t.Error(err)
	}
	stdout, _, exit := run("churn", "--cni-path", dir, "--pods", "1", "--retry", "100ms", filepath.Join(dir, "n.conflist"))
	if exit != 1 || !strings.Contains(stdout, `"adds":0`) || !strings.Contains(stdout, "no pods today") || strings.Count(stdout, "\n") != 1 {
		t.Errorf("churn: exit %d, %s", exit, stdout)
	}
}
