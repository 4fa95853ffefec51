package cni_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"unnest.io/unnest/internal/check/cni"
)

// withMoreAddresses widens the address ranges of a network.
func withMoreAddresses(n cni.Network) cni.Network {
	n.List = []byte(strings.NewReplacer(`.18"`, `.210"`, `::18"`, `::ff"`).Replace(string(n.List)))
	return n
}

func runChurn(t *testing.T, o cni.ChurnOptions) cni.ChurnResult {
	t.Helper()
	seen, err := cni.Churn(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%+v", seen)
	nothingLeft(t)
	return seen
}

func TestChurn(t *testing.T) {
	privileged(t)
	seen := runChurn(t, cni.ChurnOptions{Network: withMoreAddresses(testNetwork(t, "bridge")), Pods: 24, Rounds: 1})
	if len(seen.Failures) > 0 || seen.Adds != 48 || seen.Dels != 48 || seen.Verified != 96 || seen.Version != "1.0.0" {
		t.Errorf("failures: %v", seen.Failures)
	}
	if a := seen.Add; a.P50 <= 0 || a.P50 > a.P90 || a.P90 > a.P99 || a.P99 > a.Max || seen.Ready.Max < a.Max {
		t.Errorf("latencies: %+v", seen)
	}
}

func TestChurnRetries(t *testing.T) {
	privileged(t)
	seen := runChurn(t, cni.ChurnOptions{Network: testNetwork(t, modelName+"try-again"), Pods: 4, Rounds: 1})
	if len(seen.Failures) > 0 || seen.AddRetries != 8 || seen.Adds != 8 || seen.DelRetries != 0 {
		t.Errorf("ADD asks to be retried: %+v", seen)
	}
	seen = runChurn(t, cni.ChurnOptions{Network: testNetwork(t, modelName+"del-later"), Pods: 4, Rounds: 1})
	if len(seen.Failures) > 0 || seen.DelRetries != 8 || seen.Dels != 8 {
		t.Errorf("DEL fails once: %+v", seen)
	}
}

func TestChurnSeesFailures(t *testing.T) {
	privileged(t)
	for fault, want := range map[string]string{
		"wrong-mac":      "after ADD: eth0 has MAC ",
		"refuses-all":    "no pods today",
		"del-never":      "retried for 300ms: DEL: ",
		"del-keeps-link": "left in the pod: eth0",
		"gc-fails":       "no garbage today",
	} {
		t.Run(fault, func(t *testing.T) {
			n := testNetwork(t, modelName+fault)
			seen := runChurn(t, cni.ChurnOptions{Network: n, Pods: 2, Retry: 300 * time.Millisecond})
			if !strings.Contains(strings.Join(seen.Failures, "\n"), want) {
				t.Errorf("failures: %q", seen.Failures)
			}
		})
	}
}

func TestChurnInterrupted(t *testing.T) {
	privileged(t)
	cause := errors.New("interrupted")
	var seen cni.ChurnResult
	var err error
	for after := 300 * time.Millisecond; seen.Adds == 0 && after < time.Minute; after *= 2 { // a busy machine begins later
		ctx, interrupt := context.WithCancelCause(t.Context())
		time.AfterFunc(after, func() { interrupt(cause) })
		seen, err = cni.Churn(ctx, cni.ChurnOptions{Network: withMoreAddresses(testNetwork(t, "bridge")), Pods: 100})
	}
	if !errors.Is(err, cause) || seen.Adds == 0 || seen.Adds == 100 || seen.Dels < seen.Adds {
		t.Errorf("%+v, %v", seen, err)
	}
	nothingLeft(t)
}
