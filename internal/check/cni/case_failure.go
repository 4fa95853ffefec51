package cni

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/containernetworking/cni/pkg/types"

	"unnest.io/unnest/internal/check"
)

// failureCases check how a plugin refuses what it cannot do.
var failureCases = []testCase{
	{"add-netns-missing", "ADD", Must, "", addNetnsMissing},
	{"add-netns-not-one", "ADD", Must, "", addNetnsNotOne},
	{"add-no-delegate", "Delegated plugin execution procedure", Must, "", addNoDelegate},
	{"add-no-delegate-rollback", "Delegated plugin execution procedure", Should, "", func(t *trial) { t.mustBeEmpty(t.addWithoutDelegate()) }},
	{"error-broken-json", "Error", Must, "", refuses(brokenJSON(), types.ErrDecodingFailure, types.ErrInvalidNetworkConfig)},
	{"error-unknown-version", "Error", Must, "", refuses([]call{
		{command: "ADD", config: map[string]any{"cniVersion": "9.9.9"}},
		{command: "DEL", config: map[string]any{"cniVersion": "9.9.9"}},
	}, types.ErrIncompatibleCNIVersion)},
	{"error-missing-parameter", "Error", Must, "", errorMissingParameter},
	{"error-container-id", "Parameters", Must, "", refuses(addWith("CNI_CONTAINERID", "../escape", "a/b", "-dash", "with space"),
		types.ErrInvalidEnvironmentVariables)},
	{"error-interface-name", "Parameters", Must, "", refuses(addWith("CNI_IFNAME", "a/b", "..", "longer-than-a-link", "with space", "a:b"),
		types.ErrInvalidEnvironmentVariables)},
	{"error-network-name", "Configuration format", Must, "", refuses([]call{
		{command: "ADD", config: map[string]any{"name": ""}},
		{command: "ADD", config: map[string]any{"name": "a/b"}},
		{command: "ADD", config: map[string]any{"name": "-dash"}},
	}, types.ErrInvalidNetworkConfig)},
	{"error-unknown-command", "CNI operations", Must, "", refuses([]call{{command: "REMEMBER"}}, types.ErrInvalidEnvironmentVariables)},
	{"error-cni-version", "Error", Should, "", errorCNIVersion},
}

// refuses makes calls that must fail with one of the codes and leave nothing.
func refuses(calls []call, codes ...uint) func(*trial) {
	return func(t *trial) {
		p := t.pod()
		for _, c := range calls {
			t.refused(p, c, codes...)
		}
		t.mustBeEmpty(p)
	}
}

// addWith are ADDs with each of the values of a parameter.
func addWith(name string, values ...string) (calls []call) {
	for _, v := range values {
		calls = append(calls, call{command: "ADD", set: parameters{name: v}})
	}
	return calls
}

func brokenJSON() (calls []call) {
	for _, command := range []string{"ADD", "DEL"} {
		for _, text := range []string{"", "{", `{"cniVersion":`, "[]", "\x00"} {
			calls = append(calls, call{command: command, stdin: &text})
		}
	}
	return calls
}

// String describes what is unusual about a call.
func (c call) String() string {
	s := c.command
	for _, name := range sortedKeys(c.set) {
		s += fmt.Sprintf(" with %s %q", name, c.set[name])
	}
	for _, key := range sortedKeys(c.config) {
		s += fmt.Sprintf(" with %s %q in the configuration", key, c.config[key])
	}
	if c.unset != "" {
		s += " without " + c.unset
	}
	if c.stdin != nil {
		s += fmt.Sprintf(" with %q on the standard input", *c.stdin)
	}
	return s
}

// refused makes a call that must fail with one of the codes; none: any.
func (t *trial) refused(p *pod, c call, codes ...uint) (e protocolError) {
	check.Within(c.String(), func() {
		e = check.Get(t.run(p, c).failure())
		if len(codes) > 0 && !slices.Contains(codes, *e.Code) {
			check.Failf("error code %d (%q), want one of %v", *e.Code, e.Msg, codes)
		}
	})
	return e
}

func addNetnsMissing(t *trial) { t.refusesNetns(filepath.Join(t.dir, "missing")) }

func addNetnsNotOne(t *trial) {
	path := filepath.Join(t.dir, "file")
	check.Must(os.WriteFile(path, nil, 0o600))
	t.refusesNetns(path)
}

// refusesNetns adds a pod with a wrong CNI_NETNS. The plugin must leave nothing, even
// before the DEL that a runtime sends in any case.
func (t *trial) refusesNetns(path string) {
	p := t.pod()
	t.touch(p, eth0)
	t.refused(p, call{command: "ADD", set: parameters{"CNI_NETNS": path}})
	t.mustBeEmpty(p)
}

// addWithoutDelegate adds a pod while CNI_PATH does not contain the IPAM plugin.
func (t *trial) addWithoutDelegate() *pod {
	if t.ipam == "" {
		check.Skip(noIPAM)
	}
	p := t.pod()
	t.touch(p, eth0)
	t.refused(p, call{command: "ADD", set: parameters{"CNI_PATH": t.dir}})
	return p
}

const noIPAM = "the network has no IPAM plugin"

func addNoDelegate(t *trial) {
	p := t.addWithoutDelegate()
	t.delFrom(p, eth0)
	t.mustBeEmpty(p)
	check.Within("with the IPAM plugin available again", func() { t.works(p, eth0, t.addTo(p, eth0)) })
}

func errorMissingParameter(t *trial) {
	required := map[string][]string{
		"ADD": {"CNI_CONTAINERID", "CNI_NETNS", "CNI_IFNAME"},
		"DEL": {"CNI_CONTAINERID", "CNI_IFNAME"},
	}
	if !older(t.version, "0.4.0") {
		required["CHECK"] = required["ADD"]
	}
	p := t.pod()
	for _, command := range sortedKeys(required) {
		for _, name := range required[command] {
			c := call{command: command, unset: name}
			e := t.refused(p, c, types.ErrInvalidEnvironmentVariables)
			if !strings.Contains(e.Msg+e.Details, name) {
				check.Failf("%s: the error does not name it: %q", c, e.Msg)
			}
		}
	}
	t.mustBeEmpty(p)
}

func errorCNIVersion(t *trial) {
	p := t.pod()
	t.touch(p, eth0)
	e := t.refused(p, call{command: "ADD", set: parameters{"CNI_NETNS": filepath.Join(t.dir, "missing")}})
	if e.CNIVersion != t.version {
		check.Failf("the error object has cniVersion %q, want %q", e.CNIVersion, t.version)
	}
}
