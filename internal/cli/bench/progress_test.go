package bench

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"unnest.io/unnest/internal/measure/experiment"
	"unnest.io/unnest/internal/measure/noise"
	"unnest.io/unnest/internal/measure/result"
	"unnest.io/unnest/internal/measure/stack"
)

func execution(configuration, group string, size int) experiment.Execution {
	return experiment.Execution{
		Configuration: stack.Configuration{Name: configuration},
		Case:          experiment.Case{Case: result.Case{Group: group, Size: size}},
	}
}

// story reports the events of a short run, in fake time.
func story(p experiment.Progress) {
	nat, brf := execution("NAT", "udp_rr", 1280), execution("BrFusion", "tcp_stream", 0)
	p.Phase("boot guest")
	time.Sleep(21340 * time.Millisecond)
	p.Phase("start containers")
	time.Sleep(450 * time.Millisecond)
	p.Report(experiment.Event{Kind: experiment.Begun, Planned: 4, Left: 130 * time.Second})
	p.Report(experiment.Event{Kind: experiment.Started, Execution: nat, Attempt: 1, Planned: 4, Left: 130 * time.Second})
	time.Sleep(5 * time.Second)
	p.Report(experiment.Event{Kind: experiment.Done, Execution: nat, Value: 213.4, Unit: "us", Done: 1, Planned: 4, Left: 70 * time.Second})
	p.Report(experiment.Event{Kind: experiment.Started, Execution: brf, Attempt: 1, Done: 1, Planned: 4})
	time.Sleep(6 * time.Second)
	p.Report(experiment.Event{Kind: experiment.Done, Execution: brf, Value: 21.34, Unit: "Mbit/s", Done: 2, Planned: 4, Left: 6 * time.Second})
	p.Report(experiment.Event{Kind: experiment.Disturbed, Execution: nat, Reading: noise.Reading{Others: 0.6, Busiest: []noise.Share{{PID: 7, Name: "spin"}}}, Done: 2, Planned: 4})
	p.Report(experiment.Event{Kind: experiment.Retried, Execution: nat, Attempt: 1, Err: errors.New("no route"), Done: 2, Planned: 4})
	p.Report(experiment.Event{Kind: experiment.GivenUp, Execution: nat, Attempt: 2, Err: errors.New("no route"), Done: 3, Planned: 4})
	p.Report(experiment.Event{Kind: experiment.Extended, Done: 3, Planned: 5, Left: 2 * time.Second, Until: 0.05,
		Precisions: []experiment.Precision{{Case: "tcp_stream", Half: 0.06, Further: 2},
			{Case: "udp_rr/1280", Configuration: "BrFusion", Baseline: "NAT", Ratio: 0.74, Half: 0.12, Blocks: 6, Further: 30}}})
	p.Report(experiment.Event{Kind: experiment.Ended, Done: 3, Planned: 4, Failures: 1})
}

func play(t *testing.T, width int) string {
	var b strings.Builder
	synctest.Test(t, func(*testing.T) { story(newProgress(&b, width)) })
	return b.String()
}

func TestLog(t *testing.T) {
	want := `boot guest …
boot guest: 21.3s
start containers …
start containers: 450ms
4 of 4 executions to do, about 2m10s
[2/4] BrFusion tcp_stream  21.3 Mbit/s  6s left
NAT udp_rr 1280 B: other processes used 0.60 processors, most of it spin (process 7): measuring again; further ones are counted at the end
NAT udp_rr 1280 B: attempt 1: no route: trying again
NAT udp_rr 1280 B: given up after attempt 2: no route
2 more executions: udp_rr/1280 BrFusion/NAT 0.74 ± 0.09, goal ± 0.04, about 1m0s left
2 of 4 executions done in 11s, 1 given up, 1 measured again
`
	if got := play(t, 0); got != want {
		t.Errorf("got:\n%s\nwant:\n%s", got, want)
	}
}

func TestTerminal(t *testing.T) {
	clear := "\r\x1b[K"
	want := strings.Join([]string{
		clear + "boot guest …",
		clear + "boot guest: 21.3s\n",
		clear + "start containers …",
		clear + "start containers: 450ms\n",
		"4 of 4 executions to do, about 2m10s\n",
		clear + "[0/4] NAT udp_rr 1280 B …  2m10s left",
		clear + "[1/4] NAT udp_rr 1280 B  213 µs  1m10s left",
		clear + "[2/4] BrFusion tcp_stream  21.3 Mbit/s  6s left",
		clear + "NAT udp_rr 1280 B: other processes used 0.60 processors, most of it spin (process 7): measuring again; further ones are counted at the end\n",
		"NAT udp_rr 1280 B: attempt 1: no route: trying again\n",
		"NAT udp_rr 1280 B: given up after attempt 2: no route\n",
		"2 more executions: udp_rr/1280 BrFusion/NAT 0.74 ± 0.09, goal ± 0.04, about 1m0s left\n",
		"2 of 4 executions done in 11s, 1 given up, 1 measured again\n",
	}, "")
	if got := play(t, 80); got != want {
		t.Errorf("got:\n%q\nwant:\n%q", got, want)
	}
}

func TestTerminalKeepsItsStatusOnOneLine(t *testing.T) {
	for part := range strings.SplitSeq(play(t, 20), "\r\x1b[K") {
		if !strings.Contains(part, "\n") && len([]rune(part)) > 19 {
			t.Errorf("%q is wider than 19 columns", part)
		}
	}
}

func TestEndedBeforeItBegan(t *testing.T) {
	var b strings.Builder
	newProgress(&b, 80).Report(experiment.Event{Kind: experiment.Ended})
	if b.Len() > 0 {
		t.Errorf("wrote %q", b.String())
	}
}

func TestQuantity(t *testing.T) {
	for want, value := range map[string]float64{
		"18235 us": 18234.6, "213 us": 213.4, "100 us": 100, "21.3 us": 21.34, "2.13 us": 2.134, "0.213 us": 0.2134, "0 us": 0, "0.012 us": 0.0123,
	} {
		if got := quantity(value, "us"); got != strings.Replace(want, "us", "µs", 1) {
			t.Errorf("quantity(%v) = %q, want %q", value, got, want)
		}
	}
}

func TestShort(t *testing.T) {
	for want, d := range map[string]time.Duration{
		"2m10s": 130400 * time.Millisecond, "1h0m0s": time.Hour, "21.3s": 21340 * time.Millisecond, "450ms": 450*time.Millisecond + 3, "0s": 0,
	} {
		if got := short(d); got != want {
			t.Errorf("short(%v) = %q, want %q", d, got, want)
		}
	}
}
