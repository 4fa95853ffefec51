package plan

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"unnest.io/unnest/internal/plan/summary"
)

// googleTrace writes task events in which ann's jobs 1 and 2 have a 2xlarge each, and
// job 3 of two tasks comes after half an hour, for half an hour; the trace ends after
// two hours with a job of bob's.
func googleTrace(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	row := func(at time.Duration, job, task, kind int, user string, vcpu float64) string {
		return fmt.Sprintf("%d,,%d,%d,9,%d,%s,2,0,%v,%v,0,0\n", at.Microseconds(), job, task, kind, user, vcpu/96, vcpu/96)
	}
	tasks := row(0, 1, 0, 1, "ann", 7) + row(0, 2, 0, 1, "ann", 7) +
		row(30*time.Minute, 3, 0, 0, "ann", 1) + row(30*time.Minute, 3, 0, 1, "ann", 1) + row(30*time.Minute, 3, 1, 1, "ann", 1) +
		row(45*time.Minute, 3, 0, 5, "ann", 1) + row(time.Hour, 3, 1, 4, "ann", 1) +
		row(2*time.Hour-time.Second, 4, 0, 1, "bob", 1) + row(2*time.Hour, 5, 0, 1, "bob", 200)
	for name, text := range map[string]string{"task_events": tasks, "job_events": ""} {
		path := filepath.Join(dir, name, "part-00000-of-00500.csv")
		if err := errors.Join(os.Mkdir(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	return "google2011:" + dir
}

func replayOf(t *testing.T, args ...string) summary.Replay {
	t.Helper()
	var r summary.Replay
	if err := json.Unmarshal([]byte(must(t, append(args, "--replay", "--json")...)), &r); err != nil {
		t.Fatal(err)
	}
	return r
}

// Two 2xlarge of 0.448 $/h for two hours; a large of 0.112 for the half hour, unless
// job 3 is shared out; and a large for bob's last second, which is billed as more.
func TestReplay(t *testing.T) {
	trace := googleTrace(t)
	tests := []struct {
		offer              string
		args               []string
		kubernetes, shared float64
		hour               int // index of the moment at which job 3 is there
	}{
		{"", nil, 1.84986667, 1.79386667, 15},
		{"billing_minimum: 1s\n", nil, 1.84803111, 1.79203111, 15},
		{"", []string{"--at", "15m..45m"}, 0.476, 0.448, 30},
	}
	for _, tt := range tests {
		r := replayOf(t, append([]string{"--trace", trace, "--catalogue", offer(t, tt.offer+"models: [large, xlarge, 2xlarge, 4xlarge]")}, tt.args...)...)
		for i, want := range []float64{tt.kubernetes, tt.shared, tt.shared} {
			if got := float64(r.Plans[i].Cost) / 1e9; got-want > 1e-7 || want-got > 1e-7 {
				t.Errorf("%s%v: %s costs %v, want %v", tt.offer, tt.args, r.Plans[i].Plan, got, want)
			}
		}
		if rate := r.Plans[0].Rates; len(rate) != summary.Moments || rate[0] != 896e6 || rate[tt.hour] != 1008e6 {
			t.Errorf("%v: rates %v, want 0.896, and 1.008 at %d", tt.args, rate, tt.hour)
		}
	}
}

func TestReplayText(t *testing.T) {
	text := words(must(t, "--trace", googleTrace(t), "--replay=3"))
	for _, want := range []string{
		"2 users, 4 stays of pods with 5 containers, from 0s to 2h0m0s of the trace",
		"Left out: 1 stay of a pod too large for any VM (oversize: drop)",
		"VMs are billed by the second, for at least 1m0s. At most 3 containers move at an event.",
		"kubernetes 1.850 0 % 0.925", "shared 1.794 -3.03 %", "ann 1.848 1.792",
		"Read google2011, 1 file: 2 users, 5 pods, 6 containers rows count read 9 kept 6",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("lacks %q:\n%s", want, text)
		}
	}
}

func TestReplayErrors(t *testing.T) {
	trace := googleTrace(t)
	for _, tt := range []struct {
		args []string
		want string
	}{
		{[]string{"--trace", "generated:1", "--replay"}, "want google2011:PATH or sorted columns: only events sorted by time can be replayed"},
		{[]string{"--trace", "csv:" + file(t, "pods.csv", pods), "--replay"}, "want google2011 or columns with the key sorted, a pod of one column and no inside"},
		{[]string{"--trace", trace, "--replay", "--at", "0"}, "want two times, such as 0..1h"},
		{[]string{"--trace", trace, "--replay", "--catalogue", offer(t, "billing_minimum: 0s")}, "billing_minimum: want a time above 0, such as 1m"},
		{[]string{"--trace", trace, "--trace", "csv:" + file(t, "pods.csv", pods), "--replay"}, "replay them one after the other"},
		{[]string{"--trace", trace, "--replay", "--owner", "cluster"}, "omit --owner"},
		{[]string{"--trace", trace, "--replay=-1"}, "want a number of containers from 0"},
		{[]string{"--trace", trace, "--replay", "--oversize", "refuse"}, "replay: user bob: pod 5 needs"},
		{[]string{"--trace", trace, "--replay", "--links", "all"}, "if any flags in the group"},
		{[]string{"--trace", trace, "--replay", "--shard", "0/2"}, "if any flags in the group"},
		{[]string{"--trace", trace, "--replay", "-o", "x.pdf"}, "unknown extension .pdf: want .txt (text)"},
		{[]string{"--trace", "google2011:nowhere", "--replay"}, "no such file or directory"},
	} {
		_, err := execute(t.Context(), t, tt.args...)
		if err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%v: got %v, want %q", tt.args, err, tt.want)
		}
	}
}

// Interrupted, a replay and a frontier return at once and have written nothing.
func TestModesInterrupt(t *testing.T) {
	for _, args := range [][]string{{"--trace", googleTrace(t), "--replay"}, {"--trace", "generated:1000", "--links", "all"}} {
		out := filepath.Join(t.TempDir(), "out.json")
		ctx, cancel := context.WithCancelCause(t.Context())
		stopped := errors.New("stopped")
		if args[2] == "--replay" {
			cancel(stopped)
		} else {
			time.AfterFunc(200*time.Millisecond, func() { cancel(stopped) })
		}
		begin := time.Now()
		_, err := execute(ctx, t, append(args, "--json", "-o", out)...)
		if !errors.Is(err, stopped) || time.Since(begin) > time.Minute {
			t.Errorf("%v: ended after %v with %v, want %v at once", args, time.Since(begin), err, stopped)
		}
		if _, err := os.Stat(out); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%v: %v: a file is left", args, err)
		}
	}
}
