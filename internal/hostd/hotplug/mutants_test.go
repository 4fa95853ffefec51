package hotplug

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// Fixes of bugs that chaos and reviews had found, reverted: the simulation finds each. Bugs that another rule also prevents are not among them.
func TestModelFindsBugs(t *testing.T) {
	if os.Getenv("SOAK_SEED") != "" {
		t.Skip("it simulates many seeds")
	}
	for _, c := range []struct{ bug, file, fixed, broken string }{
		{"a late ejection takes the next pod's NIC, because the slot does not cool down", "unplug.go",
			"s.rescan || s.tries == 0 || m.config.Shares", "false"},
		{"a NIC that the guest keeps stays connected", "unplug.go",
			"m.cutOff(s)\n\t\terr", "err"},
		{"a request for a NIC that is going away is never answered", "step.go",
			"case !s.mayWait():\n\t\tm.refuse(e, ErrDetaching)\n", ""},
		{"a TAP is left behind, because only devices were looked for", "observe.go",
			"for g := range v.taps {\n\t\tall[g] = true\n\t}\n", ""},
		{"a pod loses its NIC, and nobody is told", "unplug.go",
			"m.reportLost(s, false)\n\tswitch", "switch"},
		{"a NIC stays a pod's of which the guest was reset during its connect", "step.go",
			"m.failAttach(s, ErrGuestReset)\n\t\t\ts.reset = true", "m.failAttach(s, ErrGuestReset)"},
		{"a timer of an earlier request cuts a NIC off too soon", "unplug.go",
			"s == nil || s.tries != e.Timer.Try", "s == nil"},
	} {
		t.Run(c.bug, func(t *testing.T) {
			t.Parallel()
			path, err := filepath.Abs(c.file)
			if err != nil {
				t.Fatal(err)
			}
			source, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if strings.Count(string(source), c.fixed) != 1 {
				t.Fatalf("%s does not have once: %s", c.file, c.fixed)
			}
			dir := t.TempDir()
			write := func(name string, content []byte) string {
				name = filepath.Join(dir, name)
				if err := os.WriteFile(name, content, 0o644); err != nil {
					t.Fatal(err)
				}
				return name
			}
			broken := write(c.file, []byte(strings.Replace(string(source), c.fixed, c.broken, 1)))
			overlay, err := json.Marshal(map[string]any{"Replace": map[string]string{path: broken}})
			if err != nil {
				t.Fatal(err)
			}
			cmd := exec.Command("go", "test", "-vet=off", "-overlay", write("overlay.json", overlay), "-short", "-run", "^(TestModel|TestSharesAtRandom)$", ".")
			out, err := cmd.CombinedOutput()
			if err == nil || !strings.Contains(string(out), "replays this") {
				t.Errorf("the simulation does not find it: %v\n%s", err, out)
			}
		})
	}
}
