package cni_test

import (
	"context"
	"encoding/json"
	"errors"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"unnest/internal/check/cni"
)

// room gives a network more addresses.
func room(n cni.Network) cni.Network {
	n.List = []byte(strings.NewReplacer(`.21"`, `.210"`, `::1b"`, `::ff"`).Replace(string(n.List)))
	return n
}

func runChurn(t *testing.T, o cni.ChurnOptions) cni.Churned {
	t.Helper()
	seen, err := cni.Churn(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%+v", seen)
	left, err := os.ReadDir("/run/netns")
	if err != nil || len(left) > 0 {
		t.Errorf("left: %v, %v", left, err)
	}
	return seen
}

// TestChurn calls every pod back from the bridge's side, too.
func TestChurn(t *testing.T) {
	privileged(t)
	l, err := net.Listen("tcp", ":0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	served := make(chan error)
	go func() { served <- cni.ServeCalls(ctx, l) }()
	n := room(testNetwork(t, "bridge"))
	_, port, err := net.SplitHostPort(l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	seen := runChurn(t, cni.ChurnOptions{Network: n, Pods: 24, Rounds: 1, CallBack: net.JoinHostPort(gateway(t, n), port)})
	if len(seen.Failures) > 0 || seen.Adds != 48 || seen.Dels != 48 || seen.Verified != 96 || seen.Version != "1.0.0" {
		t.Errorf("failures: %v", seen.Failures)
	}
	if a := seen.Add; a.P50 <= 0 || a.P50 > a.P90 || a.P90 > a.P99 || a.P99 > a.Max || seen.Ready.Max < a.Max {
		t.Errorf("latencies: %+v", seen)
	}
	stop()
	if err := <-served; err != nil {
		t.Error(err)
	}
}

// gateway is the first of the network's.
func gateway(t *testing.T, n cni.Network) string {
	t.Helper()
	var list struct {
		Plugins []struct {
			IPAM struct {
				Ranges [][]struct{ Gateway string }
			}
		}
	}
	if err := json.Unmarshal(n.List, &list); err != nil {
		t.Fatal(err)
	}
	return list.Plugins[0].IPAM.Ranges[0][0].Gateway
}

func TestChurnTriesAgain(t *testing.T) {
	privileged(t)
	seen := runChurn(t, cni.ChurnOptions{Network: testNetwork(t, modelName+"try-again"), Pods: 4, Rounds: 1})
	if len(seen.Failures) > 0 || seen.AddRetries != 8 || seen.Adds != 8 || seen.DelRetries != 0 {
		t.Errorf("ADD asks for another try: %+v", seen)
	}
	seen = runChurn(t, cni.ChurnOptions{Network: testNetwork(t, modelName+"del-later"), Pods: 4, Rounds: 1})
	if len(seen.Failures) > 0 || seen.DelRetries != 8 || seen.Dels != 8 {
		t.Errorf("DEL fails once: %+v", seen)
	}
}

func TestChurnSeesFailures(t *testing.T) {
	privileged(t)
	for fault, want := range map[string]string{
		"wrong-mac":      "after ADD: the MAC of eth0",
		"refuses-all":    "no pods today",
		"del-never":      "tried for 300ms: DEL: ",
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
	ctx, interrupt := context.WithCancelCause(t.Context())
	cause := errors.New("interrupted")
	time.AfterFunc(300*time.Millisecond, func() { interrupt(cause) })
	seen, err := cni.Churn(ctx, cni.ChurnOptions{Network: room(testNetwork(t, "bridge")), Pods: 100})
	if !errors.Is(err, cause) || seen.Adds == 0 || seen.Adds == 100 || seen.Dels < seen.Adds {
		t.Errorf("%+v, %v", seen, err)
	}
	left, err := os.ReadDir("/run/netns")
	if err != nil || len(left) > 0 {
		t.Errorf("left: %v, %v", left, err)
	}
}
