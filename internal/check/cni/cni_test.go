package cni_test

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"unnest.io/unnest/internal/check/cni"
)

func privileged(t *testing.T) {
	t.Helper()
	if os.Getenv("UNNEST_PRIVILEGED") != "1" {
		t.Skip("needs root: set UNNEST_PRIVILEGED=1")
	}
	if _, err := os.Stat(filepath.Join(pluginDir, "bridge")); err != nil {
		t.Fatalf("install containernetworking-plugins: %v", err)
	}
}

// modelName is the name of the plugin without a fault, and the prefix of the others.
const modelName = "model-"

// capacity is more than the pods that are added at the same time.
const capacity = 9

// networks counts the bridges. Each has its own subnet.
var networks int

// testNetwork returns a list of a bridge with host-local, IPv4 and IPv6, with addresses for
// as many pods as capacity, and of more plugins.
func testNetwork(t *testing.T, plugin string, more ...map[string]any) cni.Network {
	t.Helper()
	networks++
	dir := t.TempDir()
	subnet4, subnet6 := fmt.Sprintf("10.80.%d", networks), fmt.Sprintf("fd80:%x", networks)
	ipam := "host-local"
	if strings.HasPrefix(plugin, modelName) {
		ipam = "leases" // bridge does not speak 1.1.0 anyway
	}
	first := map[string]any{
		"type": plugin, "bridge": fmt.Sprint("cnt", networks), "isGateway": true, "capacity": 2 * capacity, // an IPv4 and an IPv6 address each
		"ipam": map[string]any{
			"type": ipam, "dataDir": filepath.Join(dir, "data"),
			"ranges": []any{
				[]any{map[string]any{"subnet": subnet4 + ".0/24", "rangeStart": subnet4 + ".10", "rangeEnd": subnet4 + ".18", "gateway": subnet4 + ".1"}},
				[]any{map[string]any{"subnet": subnet6 + "::/64", "rangeStart": subnet6 + "::10", "rangeEnd": subnet6 + "::18", "gateway": subnet6 + "::1"}},
			},
			"routes": []any{map[string]any{"dst": "0.0.0.0/0"}, map[string]any{"dst": "::/0"}},
		},
	}
	list := map[string]any{"cniVersion": "1.0.0", "name": fmt.Sprint("test", networks), "plugins": append([]map[string]any{first}, more...)}
	text, err := json.Marshal(list)
	if err != nil {
		t.Fatal(err)
	}
	installPlugins(t, dir, plugin)
	return cni.Network{List: text, Path: []string{dir}}
}

// installPlugins links Debian's plugins and those of this test into dir.
func installPlugins(t *testing.T, dir, model string) {
	t.Helper()
	exe, err := pluginBinary()
	if err != nil {
		t.Fatal(err)
	}
	links := map[string]string{model: exe, "leases": exe, "passer": exe, "dropper": exe}
	for _, name := range []string{"bridge", "host-local", "tuning"} {
		links[name] = filepath.Join(pluginDir, name)
	}
	for name, target := range links {
		if err := os.Symlink(target, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
}

// checked runs the checks and returns their names by verdict.
func checked(t *testing.T, o cni.Options) map[cni.Verdict][]string {
	t.Helper()
	found := map[cni.Verdict][]string{}
	err := cni.Run(t.Context(), o, func(out cni.Outcome) {
		v := out.Verdict()
		t.Logf("%-5s %-6s %-26s %6dms %v%s", v, out.Version, out.Check, out.Duration.Milliseconds(), out.Err, out.NotApplicable)
		if !slices.Contains(found[v], out.Check) {
			found[v] = append(found[v], out.Check)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// except matches all checks except the named ones.
func except(names ...string) *regexp.Regexp {
	rest := slices.DeleteFunc(cni.Checks(), func(c string) bool { return slices.Contains(names, c) })
	return regexp.MustCompile("^(" + strings.Join(rest, "|") + ")$")
}

func only(name string) *regexp.Regexp { return regexp.MustCompile("^" + name + "$") }

// TestReferencePluginPasses omits the crash checks: a host-local that is killed between
// creating and writing the file of a lease leaks the address.
func TestReferencePluginPasses(t *testing.T) {
	privileged(t)
	found := checked(t, cni.Options{Network: testNetwork(t, "bridge"), Capacity: capacity, Only: except("crash-add", "crash-del")})
	if fail := found[cni.Fail]; len(fail) > 0 {
		t.Errorf("failed: %v", fail)
	}
	// Debian's bridge does not undo a failed ADD, and its error objects have no cniVersion.
	want := []string{"add-no-delegate-rollback", "error-cni-version"}
	if got := found[cni.Unmet]; !slices.Equal(got, want) {
		t.Errorf("unmet: %v, want %v", got, want)
	}
	if !slices.Contains(found[cni.NotApplicable], "version") {
		t.Error("no outcome says that Debian's bridge does not support 1.1.0")
	}
}

func TestReferencePluginSurvivesKills(t *testing.T) {
	privileged(t)
	found := checked(t, cni.Options{Network: testNetwork(t, "bridge"), Only: regexp.MustCompile("^crash"), Kills: 8})
	if got := found[cni.Pass]; !slices.Equal(got, []string{"version", "crash-add", "crash-del"}) {
		t.Errorf("passed: %v", got)
	}
}

func TestReferenceChainPasses(t *testing.T) {
	privileged(t)
	n := testNetwork(t, "bridge", map[string]any{"type": "tuning", "sysctl": map[string]any{"net.core.somaxconn": "500"}})
	found := checked(t, cni.Options{Network: n, Versions: []string{"1.0.0"}, Only: regexp.MustCompile("^(chain|del|check)")})
	if bad := slices.Concat(found[cni.Fail], found[cni.Unmet]); len(bad) > 0 || !slices.Contains(found[cni.Pass], "chain-prev-result") {
		t.Errorf("found: %v", found)
	}
}

func TestModelPluginMeetsAll(t *testing.T) {
	privileged(t)
	tool := buildCNITool(t)
	n := testNetwork(t, modelName, map[string]any{"type": "passer"})
	found := checked(t, cni.Options{Network: n, Capacity: capacity, CNITool: tool, Only: except("crash-add", "crash-del")})
	if bad := slices.Concat(found[cni.Fail], found[cni.Unmet]); len(bad) > 0 {
		t.Errorf("failed: %v", bad)
	}
	if got := slices.Sorted(slices.Values(found[cni.Pass])); len(got) != len(cni.Checks())-2+1 {
		t.Errorf("passed: %v", got)
	}
}

// buildCNITool builds cnitool from the module of libcni.
func buildCNITool(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "cnitool")
	if err := build("build", "-trimpath", "-o", path, "github.com/containernetworking/cni/cnitool"); err != nil {
		t.Fatal(err)
	}
	return path
}

// faults are what a plugin can do wrong, and the checks that must detect it.
var faults = []struct {
	fault   string
	version string // "": 1.1.0
	checks  []string
}{
	{"wrong-result-version", "", []string{"add-result"}},
	{"wrong-index", "", []string{"add-result"}},
	{"no-ip-version", "0.3.1", []string{"add-result"}},
	{"address-without-prefix", "", []string{"add-result", "add-result-converts"}},
	{"wrong-mac", "", []string{"add-interface"}},
	{"wrong-mtu", "", []string{"add-interface"}},
	{"wrong-address", "", []string{"add-interface"}},
	{"wrong-route", "", []string{"add-interface"}},
	{"wrong-sandbox", "", []string{"add-interface"}},
	{"link-down", "", []string{"add-interface"}},
	{"unreachable", "", []string{"add-reaches-peer"}},
	{"always-eth0", "", []string{"add-other-name"}},
	{"refuses-args", "", []string{"add-kubernetes-args"}},
	{"one-interface", "", []string{"add-two-interfaces"}},
	{"replaces-interface", "", []string{"add-name-taken", "add-twice"}},
	{"second-add-breaks", "", []string{"add-twice"}},
	{"second-add-succeeds", "", []string{"add-twice", "parallel-same-attachment"}},
	{"leaks-on-failure", "", []string{"add-netns-missing", "add-netns-not-one", "add-no-delegate"}},
	{"no-rollback", "", []string{"add-no-delegate-rollback"}},
	{"error-not-json", "", []string{"error-broken-json", "add-netns-missing"}},
	{"error-exit-zero", "", []string{"error-broken-json", "error-unknown-version"}},
	{"error-without-code", "", []string{"error-missing-parameter"}},
	{"error-wrong-code", "", []string{"error-unknown-version", "error-missing-parameter", "error-network-name", "error-unknown-command"}},
	{"error-anonymous", "", []string{"error-missing-parameter"}},
	{"error-without-version", "", []string{"error-cni-version"}},
	{"accepts-any-id", "", []string{"error-container-id"}},
	{"accepts-any-interface", "", []string{"error-interface-name"}},
	{"del-keeps-link", "", []string{"del"}},
	{"del-keeps-address", "", []string{"add-again-after-del", "capacity-exhausted"}},
	{"del-once", "", []string{"del-twice"}},
	{"del-needs-result", "", []string{"del-without-prev-result"}},
	{"del-needs-netns", "", []string{"del-netns-gone", "del-netns-empty"}},
	{"del-needs-link", "", []string{"del-link-gone"}},
	{"del-unknown-fails", "", []string{"del-unknown-container"}},
	{"del-takes-all", "", []string{"del-other-interface", "add-two-interfaces"}},
	{"check-fails", "0.4.0", []string{"check"}},
	{"check-passes", "0.4.0", []string{"check-address-removed", "check-route-removed", "check-link-removed", "check-netns-gone"}},
	{"not-parallel", "", []string{"parallel-add-del"}},
	{"same-address", "", []string{"parallel-add-del"}},
	{"same-mac", "", []string{"parallel-add-del"}},
	{"stale-lock", "", []string{"crash-add", "crash-del"}},
	{"status-ill", "", []string{"status"}},
	{"status-fine", "", []string{"status-no-delegate", "status-exhausted"}},
	{"gc-takes-all", "", []string{"gc-keeps-valid"}},
	{"gc-fails", "", []string{"gc-leaked"}},
	{"gc-keeps-all", "", []string{"gc-frees-leaked"}},
}

func TestFaultsAreDetected(t *testing.T) {
	privileged(t)
	seen := []string{"chain-prev-result", "cnitool"} // have their own tests
	for _, f := range faults {
		seen = append(seen, f.checks...)
		for _, name := range f.checks {
			t.Run(f.fault+"/"+name, func(t *testing.T) {
				n := testNetwork(t, modelName+f.fault)
				n.Wait = time.Second // for what never comes
				found := checked(t, cni.Options{Network: n, Capacity: capacity,
					Versions: []string{cmp.Or(f.version, "1.1.0")}, Only: only(name)})
				if bad := slices.Concat(found[cni.Fail], found[cni.Unmet]); !slices.Contains(bad, name) && !slices.Contains(bad, "warm-up") {
					t.Errorf("found: %v", found)
				}
			})
		}
	}
	for _, name := range cni.Checks() {
		if !slices.Contains(seen, name) {
			t.Errorf("%s: no fault in the table makes this check fail", name)
		}
	}
}

func TestLostResultIsDetected(t *testing.T) {
	privileged(t)
	n := testNetwork(t, modelName, map[string]any{"type": "dropper"})
	found := checked(t, cni.Options{Network: n, Versions: []string{"1.1.0"}, Only: only("chain-prev-result")})
	if got := found[cni.Fail]; !slices.Equal(got, []string{"chain-prev-result"}) {
		t.Errorf("failed: %v", got)
	}
}

func TestBrokenCNIToolIsDetected(t *testing.T) {
	privileged(t)
	found := checked(t, cni.Options{Network: testNetwork(t, modelName), Versions: []string{"1.1.0"}, Only: only("cnitool"), CNITool: "/bin/false"})
	if got := found[cni.Fail]; !slices.Equal(got, []string{"cnitool"}) {
		t.Errorf("failed: %v", got)
	}
}

// TestInterrupt ends the checks early. Nothing may be left.
func TestInterrupt(t *testing.T) {
	privileged(t)
	ctx, interrupt := context.WithCancelCause(t.Context())
	cause := errors.New("interrupted")
	time.AfterFunc(400*time.Millisecond, func() { interrupt(cause) })
	n := testNetwork(t, modelName)
	if err := cni.Run(ctx, cni.Options{Network: n}, func(cni.Outcome) {}); !errors.Is(err, cause) {
		t.Errorf("error: %v", err)
	}
	nothingLeft(t)
}

func nothingLeft(t *testing.T) {
	t.Helper()
	if left, err := os.ReadDir("/run/netns"); err != nil || len(left) > 0 {
		t.Errorf("network namespaces left: %v, %v", left, err)
	}
}
