package install

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

const ours = `{"cniVersion": "1.0.0", "name": "unnest", "plugins": [{"type": "hostlo", "span": "network"}]}`

// newChain returns a node with the plugin hostlo and without a host daemon. Its directory of networks has these files.
func newChain(t *testing.T, networks map[string]string) (n Node, dir string) {
	t.Helper()
	n, dir = newNode(t)
	n.Chain, n.Config = true, filepath.Join(dir, "00-unnest.conflist")
	check(t, os.WriteFile(n.Config, []byte(ours), 0o600))
	for name, content := range networks {
		check(t, os.WriteFile(filepath.Join(n.ConfDir, name), []byte(content), 0o600))
	}
	return n, dir
}

func TestChained(t *testing.T) {
	sum := regexp.MustCompile(`,"unnest.io/sum":"[0-9a-f]{32}"`)
	for _, tt := range []struct {
		networks map[string]string
		want     string
	}{
		{map[string]string{"10-a.conflist": `{"cniVersion": "0.3.1", "name": "a", "disableCheck": true, "plugins": [{"type": "x", "mtu": 9007199254740993}, {"type": "portmap"}]}`, "20-b.conflist": "{"},
			`{"cniVersion":"0.3.1","disableCheck":true,"name":"a","plugins":[{"type":"x","mtu":9007199254740993},{"type":"portmap"},{"type":"hostlo","span":"network"}]}`},
		{map[string]string{"10-a.conf": `{"cniVersion": "1.0.0", "name": "a", "type": "x", "span": 5}`, "readme": "", ".05.conflist": "{"},
			`{"cniVersion":"1.0.0","name":"a","plugins":[{"cniVersion":"1.0.0","name":"a","type":"x","span":5},{"type":"hostlo","span":"network"}]}`},
		{map[string]string{"10-a.conflist": `{"cniVersion": "0.4.0", "name": "a", "plugins": [{"type": "x"}, {"type": "hostlo"}]}`},
			`{"cniVersion":"0.4.0","name":"a","plugins":[{"type":"x"},{"type":"hostlo"}]}`},
		{map[string]string{"00-multus.conf": `{"cniVersion": "1.0.0", "name": "m", "type": "multus-shim"}`, "10-a.conflist": `{"cniVersion": "1.0.0", "name": "a", "plugins": [{"type": "x"}]}`},
			"the network 00-multus.conf comes before 00-unnest.conflist in "},
		{map[string]string{"10-multus.conf": `{"cniVersion": "1.0.0", "name": "m", "type": "multus"}`}, "10-multus.conf: it is Multus"},
		{map[string]string{"10-a.conflist": `{"cniVersion": "0.3.0", "name": "a", "plugins": [{"type": "x"}]}`}, `10-a.conflist: its cniVersion is "0.3.0": hostlo needs one of 0.3.1, `},
		{map[string]string{"10-a.conf": `{"name": "a", "type": "x"}`}, `10-a.conf: its cniVersion is ""`},
		{map[string]string{"10-a.conf": `{"cniVersion": "1.0.0", "type": "x"}`}, "10-a.conf: it has no name"},
		{nil, "has no network yet: install the network of the cluster's pods"},
		{map[string]string{"10-a.conflist": "{"}, "read the network of the node: 10-a.conflist: unexpected end of JSON input"},
		{map[string]string{"10-a.conflist": `{"name": "a", "plugins": []}`}, "read the network of the node: 10-a.conflist: it has no plugin"},
		{map[string]string{"00-a.conflist": `{"name": "a", "plugins": [{"type": "x"}]}`}, "the network 00-a.conflist comes before 00-unnest.conflist in "},
	} {
		n, dir := newChain(t, tt.networks)
		nics, err := n.Ensure(t.Context())
		content, _ := os.ReadFile(n.installed())
		if err != nil && len(content) > 0 && strings.Contains(err.Error(), "was not there, and is now") && nics.Host == "" {
			nics, err = n.Ensure(t.Context()) // it has stayed
		}
		if err != nil {
			if !strings.Contains(err.Error(), tt.want) || len(content) > 0 || nics.Host != "" {
				t.Errorf("%v: got %v, host %q and %s; want %s", tt.networks, err, nics.Host, content, tt.want)
			}
			continue
		}
		var got map[string]any
		if err := json.Unmarshal(content, &got); err != nil {
			t.Error(err)
		}
		if flat := strings.NewReplacer(" ", "", "\n", "").Replace(string(content)); sum.ReplaceAllString(flat, "") != tt.want {
			t.Errorf("%v: got %s\nwant %s", tt.networks, flat, tt.want)
		}
		if asked, err := os.ReadFile(filepath.Join(dir, "asked")); nics.Host != "network" || string(asked) != `{"cniVersion":"1.1.0","name":"unnest","span":"network","type":"hostlo"}` || err != nil {
			t.Errorf("host %q; STATUS got %s, %v", nics.Host, asked, err)
		}
	}
}

// The copy is made again when it or its original changes, and stays when the plugin cannot work any more. A node whose
// plugin cannot work gets none, and no label.
func TestChainIsKept(t *testing.T) {
	n, dir := newChain(t, nil)
	original, broken := filepath.Join(n.ConfDir, "10-a.conflist"), filepath.Join(dir, "broken")
	check(t, errors.Join(os.WriteFile(original, []byte(`{"cniVersion": "1.0.0", "name": "a", "plugins": [{"type": "x"}]}`), 0o600), os.WriteFile(broken, nil, 0o600)))
	if nics, err := n.Ensure(t.Context()); err == nil || nics.Host != "" {
		t.Errorf("with a plugin that cannot work: host %q, %v", nics.Host, err)
	}
	n.want(t, "with a plugin that cannot work", "brfusion hostlo", "10-a.conflist")
	check(t, os.Remove(broken))
	for range 2 { // another program removes it each time
		if nics, err := n.Ensure(t.Context()); err == nil || !strings.Contains(err.Error(), "Cilium") || nics.Host != "" {
			t.Errorf("with a copy that was not there: host %q, %v", nics.Host, err)
		}
		check(t, os.Remove(n.installed()))
	}
	_, _ = n.Ensure(t.Context())
	if host := n.ensure(t).Host; host != "network" {
		t.Errorf("host %q", host)
	}
	copied, err := os.ReadFile(n.installed())
	check(t, err)
	istio := []byte(strings.Replace(string(copied), `"plugins": [`, `"plugins": [{"type": "istio-cni"},`, 1))
	check(t, os.WriteFile(n.installed(), istio, 0o600))
	nics, err := n.Ensure(t.Context())
	if left, _ := os.ReadFile(n.installed()); err == nil || !strings.Contains(err.Error(), "another program has changed") || nics.Host != "" || string(left) != string(istio) {
		t.Errorf("with a plugin of somebody else: host %q, %v, and the copy is %s", nics.Host, err, left)
	}
	check(t, errors.Join(os.WriteFile(n.installed(), copied, 0o600), os.WriteFile(original, []byte(`{"cniVersion": "1.0.0", "name": "a", "plugins": [{"type": "y"}]}`), 0o600)))
	n.ensure(t)
	if content, err := os.ReadFile(n.installed()); err != nil || !strings.Contains(string(content), `"y"`) || !strings.Contains(string(content), `"hostlo"`) {
		t.Errorf("after a change: %s, %v", content, err)
	}
	check(t, os.Remove(original))
	if nics, err := n.Ensure(t.Context()); err == nil || nics.Host != "" {
		t.Errorf("without the original: host %q, %v", nics.Host, err)
	}
	n.want(t, "without the original", "brfusion hostlo", "00-unnest.conflist")
	n.Chain, n.Config = false, filepath.Join(dir, "10-pods.conflist") // the chart has a network of its own now
	n.ensure(t)
	n.want(t, "with a network of the chart", "brfusion hostlo", "10-pods.conflist")
}

// The network of the chart with a host daemon, too, says that tunnels connect fractions.
func TestSpanOfNetwork(t *testing.T) {
	n, _ := newNode(t)
	n.count = func(_ context.Context, _ string, _ []byte) (NICs, error) { return NICs{Host: "f00"}, nil }
	for config, want := range map[string]string{network: "f00", strings.Replace(network, "portmap\"", "hostlo\", \"span\": \"network\"", 1): "network"} {
		check(t, os.WriteFile(n.Config, []byte(config), 0o600))
		if got := n.ensure(t).Host; got != want {
			t.Errorf("%s: host %q, want %q", config, got, want)
		}
	}
}
