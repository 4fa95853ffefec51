package startup

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"unnest.io/unnest/internal/measure/benchtest"
	"unnest.io/unnest/internal/measure/experiment"
	"unnest.io/unnest/internal/measure/machines"
	"unnest.io/unnest/internal/measure/machines/machine"
	"unnest.io/unnest/internal/measure/stack"
	"unnest.io/unnest/internal/measure/workload"
)

func TestStartupStudy(t *testing.T) {
	s := benchtest.Open(t, "startup")
	benchtest.CheckStudy(t, s)
	if plan := experiment.Schedule(s, 1); len(plan) != 100*4*2 {
		t.Errorf("%d executions, want 100 of each configuration and case", len(plan))
	}
	for _, c := range s.Cases {
		for _, m := range c.Metrics {
			if !m.Distribution {
				t.Errorf("%s: the distribution of %s is not reported", c.Name, m.Name)
			}
		}
		benchtest.MetricNames(t, c.Case)
	}
}

// Docker's containers can be started, but have no plugin to run alone.
func TestDockerStudy(t *testing.T) {
	benchtest.CheckStudy(t, benchtest.Open(t, "startup-docker"))
	s := &Study{Set: &machines.Set{Spec: benchtest.Open(t, "startup")}}
	if err := s.Check(stack.Configuration{Stack: stack.Stack{stack.VM, stack.Docker}, Network: stack.NAT}); err == nil || !strings.Contains(err.Error(), "probe add") {
		t.Errorf("got %v", err)
	}
}

// Each network is requested by its own name, and only a container behind NAT publishes
// a port.
func TestNetworkArguments(t *testing.T) {
	tests := map[stack.Network]string{
		stack.HostNetwork:   "--network host",
		stack.NAT:           "--publish 8080:8080/tcp",
		stack.DockerBridge:  "--network docker-bridge --publish 8080:8080/tcp",
		stack.BrFusion:      "--network brfusion",
		stack.BrFusionCold:  "--network brfusion-cold",
		stack.BrFusionTrunk: "--network brfusion-trunk",
	}
	for network, want := range tests {
		if got := strings.Join(machine.NetworkArgs(network, startPorts), " "); got != want {
			t.Errorf("%s: got %q, want %q", network, got, want)
		}
	}
}

func TestSumRuns(t *testing.T) {
	const journal = `{"container":"","plugin":"firewall","command":"","ifname":"","start":1,"duration":9000000000,"exit":1}
{"container":"default-c1","plugin":"bridge","command":"ADD","ifname":"eth0","start":1,"duration":100000000,"exit":0}
{"container":"default-c1","plugin":"portmap","command":"ADD","ifname":"eth0","start":2,"duration":50000000,"exit":0}
{"container":"default-c2","plugin":"bridge","command":"ADD","ifname":"eth0","start":2,"duration":900000000,"exit":0}
{"container":"default-c1","plugin":"portmap","command":"DEL","ifname":"eth0","start":3,"duration":20000000,"exit":0}
{"container":"default-c1","plugin":"bridge","command":"DEL","ifname":"eth0","start":4,"duration":10000000,"exit":0}
`
	tests := []struct {
		name, journal, container string
		add, del                 float64
		want                     string // of the error
	}{
		{"a chain", journal, "c1", 0.15, 0.03, ""},
		{"another container, without DEL", journal, "c2", 0, 0, `"c2"`},
		{"no container", journal, "", 0, 0, "not timed"},
		{"nothing", "", "c1", 0, 0, "not timed"},
		{"broken", journal[:200], "c1", 0, 0, "read the times"},
		{"failed", strings.ReplaceAll(journal, `"duration":20000000,"exit":0`, `"duration":20000000,"exit":3`), "c1", 0, 0, "portmap ended its DEL with exit code 3"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := sumRuns([]byte(tt.journal), tt.container)
			if tt.want != "" {
				if err == nil || !strings.Contains(err.Error(), tt.want) {
					t.Errorf("got %v, %v; want %q", got, err, tt.want)
				}
				return
			}
			want := []workload.Value{{Metric: "add", Value: tt.add}, {Metric: "del", Value: tt.del}}
			if diff := cmp.Diff(want, got); err != nil || diff != "" {
				t.Errorf("%v, values (-want +got):\n%s", err, diff)
			}
		})
	}
}

// The plugin gets what a runtime passes to it: its keys, with the name and version of
// the list, without capabilities.
func TestFirstPlugin(t *testing.T) {
	got, err := firstPlugin([]byte(`{"cniVersion": "1.0.0", "name": "n", "plugins": [
		{"type": "brfusion", "pool": false, "capabilities": {"bandwidth": true}}, {"type": "tuning"}]}`))
	var p map[string]any
	if err == nil {
		err = json.Unmarshal(got, &p)
	}
	want := map[string]any{"cniVersion": "1.0.0", "name": "n", "type": "brfusion", "pool": false}
	if diff := cmp.Diff(want, p); err != nil || diff != "" {
		t.Errorf("%v, configuration (-want +got):\n%s", err, diff)
	}
	for _, broken := range []string{"", "{", `{"name": "n", "plugins": []}`} {
		if got, err := firstPlugin([]byte(broken)); err == nil {
			t.Errorf("%q: got %s, want an error", broken, got)
		}
	}
	var bridge map[string]any
	if err := json.Unmarshal([]byte(bridgeConfig), &bridge); err != nil || bridge["type"] != "bridge" {
		t.Errorf("the bridge plugin's own configuration: %v, %v", bridge, err)
	}
}

// A message is assigned to the container that sent it, also if others send, and its
// time is that of its first byte.
func TestInbox(t *testing.T) {
	i, err := openInbox("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	send := func(gap time.Duration, parts ...string) {
		conn, err := net.Dial("tcp", i.listener.Addr().String())
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close()
		for n, p := range parts {
			if n > 0 {
				time.Sleep(gap)
			}
			if _, err := conn.Write([]byte(p)); err != nil {
				t.Error(err)
			}
		}
	}
	send(0) // closes at once
	send(0, "late\n")
	for gap := 100 * time.Millisecond; ; gap *= 10 { // a busy machine may read the first byte late
		before, message := time.Now(), fmt.Sprint("start-", gap)
		go send(gap, "star", strings.TrimPrefix(message, "star")+"\n")
		arrived, err := i.await(t.Context(), message)
		known := time.Since(arrived)
		if err == nil && !arrived.Before(before) && known >= gap*8/10 {
			break
		}
		if gap > 5*time.Second {
			t.Fatalf("arrived %v after it was sent, known %v after that (%v)", arrived.Sub(before), known, err)
		}
	}
	why := errors.New("told to stop")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(why)
	if _, err := i.await(ctx, "start-2"); !errors.Is(err, why) || !strings.Contains(err.Error(), "start-2") {
		t.Errorf("got %v, want %v", err, why)
	}
	if err := i.close(); err != nil {
		t.Error(err)
	}
	if conn, err := net.Dial("tcp", i.listener.Addr().String()); err == nil {
		conn.Close()
		t.Error("it still listens")
	}
}
