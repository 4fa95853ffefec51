package timer_test

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"unnest.io/unnest/internal/measure/study/startup/timer"
)

// TestMain is cni-timer when the test binary is called as the plugin probe.
func TestMain(m *testing.M) {
	if filepath.Base(os.Args[0]) == "probe" {
		os.Exit(timer.Main(os.Args[0]))
	}
	os.Exit(m.Run())
}

// called runs cni-timer with the given shell script as plugin.
func called(t *testing.T, script, journal string) (stdout, stderr string, exit int) {
	t.Helper()
	real, links := t.TempDir(), t.TempDir()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(exe, filepath.Join(links, "probe")); err != nil {
		t.Fatal(err)
	}
	if script != "" {
		if err := os.WriteFile(filepath.Join(real, "probe"), []byte("#!/bin/sh\n"+script), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	var o, e bytes.Buffer
	c := exec.Command(filepath.Join(links, "probe"))
	c.Env = append(os.Environ(), "CNI_PATH="+links, "CNI_COMMAND=ADD", "CNI_CONTAINERID=c1", "CNI_IFNAME=eth0",
		"UNNEST_CNI_PLUGINS="+real, "UNNEST_CNI_TIMES="+journal, "REAL="+real)
	c.Stdin, c.Stdout, c.Stderr = strings.NewReader("config"), &o, &e
	_ = c.Run()
	return o.String(), e.String(), c.ProcessState.ExitCode()
}

func TestPassesEverythingThrough(t *testing.T) {
	journal := filepath.Join(t.TempDir(), "run", "times.jsonl")
	script := `cat; echo " $CNI_COMMAND $CNI_CONTAINERID"; [ "$CNI_PATH" = "$REAL" ] || exit 9; echo log >&2; sleep 0.05; exit 7`
	for range 2 {
		stdout, stderr, exit := called(t, script, journal)
		if stdout != "config ADD c1\n" || stderr != "log\n" || exit != 7 {
			t.Errorf("stdout %q, stderr %q, exit %d", stdout, stderr, exit)
		}
	}
	text, err := os.ReadFile(journal)
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	if len(lines) != 2 {
		t.Fatalf("journal: %s", text)
	}
	var r timer.Run
	if err := json.Unmarshal([]byte(lines[1]), &r); err != nil {
		t.Fatal(err)
	}
	if r.Duration < int64(50*time.Millisecond) || time.Since(time.Unix(0, r.Start)) > time.Minute {
		t.Errorf("times: %+v", r)
	}
	r.Start, r.Duration = 0, 0
	if want := (timer.Run{Container: "c1", Plugin: "probe", Command: "ADD", Interface: "eth0", Exit: 7}); r != want {
		t.Errorf("journal: %+v, want %+v", r, want)
	}
}

func TestKilledPlugin(t *testing.T) {
	journal := filepath.Join(t.TempDir(), "times.jsonl")
	if _, _, exit := called(t, "kill -9 $$", journal); exit != 128+9 {
		t.Errorf("exit code %d", exit)
	}
	if text, _ := os.ReadFile(journal); !strings.Contains(string(text), `"exit":137`) {
		t.Errorf("journal: %s", text)
	}
}

func TestJournalThatCannotBeWritten(t *testing.T) {
	stdout, stderr, exit := called(t, "echo fine", "/dev/null/times.jsonl")
	if stdout != "fine\n" || stderr != "" || exit != 0 {
		t.Errorf("stdout %q, stderr %q, exit %d", stdout, stderr, exit)
	}
}

func TestMissingPluginIsAnErrorObject(t *testing.T) {
	stdout, _, exit := called(t, "", filepath.Join(t.TempDir(), "times.jsonl"))
	var e struct {
		Code uint
		Msg  string
	}
	if err := json.Unmarshal([]byte(stdout), &e); err != nil || e.Code == 0 || !strings.Contains(e.Msg, "probe") || exit != 1 {
		t.Errorf("stdout %q, exit %d, %v", stdout, exit, err)
	}
}
