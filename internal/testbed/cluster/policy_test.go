package cluster

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"unnest.io/unnest/internal/hostd/quota"
	"unnest.io/unnest/internal/testbed/fleet"
	"unnest.io/unnest/internal/testbed/lab"
)

// The policy client may list and watch what policies select, create events, and nothing else.
func TestPolicyRights(t *testing.T) {
	text := string(asJSON(map[string]any{"items": policyRights()}))
	for _, want := range []string{`"pods"`, `"namespaces"`, `"networkpolicies"`, `"events"`, `"unnest:policies"`} {
		if !strings.Contains(text, want) {
			t.Errorf("%s is not in %s", want, text)
		}
	}
	var list struct {
		Items []struct {
			Rules []struct{ Resources, Verbs []string }
		}
	}
	if err := json.Unmarshal([]byte(text), &list); err != nil {
		t.Fatal(err)
	}
	for _, rule := range list.Items[0].Rules {
		want := []string{"list", "watch"}
		if rule.Resources[0] == "events" {
			want = []string{"create"}
		}
		if !slices.Equal(rule.Verbs, want) {
			t.Errorf("%v of %v", rule.Verbs, rule.Resources)
		}
	}
}

// The daemon of a cluster takes policies, and the policy client asks it. `unnest cluster repair`
// starts the client as `unnest cluster up` does.
func TestClusterEnforcesPolicies(t *testing.T) {
	c := &Cluster{Lab: &lab.Lab{Name: LabName, Dir: t.TempDir()}, options: Options{Unnest: "/bin/unnest"}}
	var err error
	if c.fleet, err = fleet.Open(c.Lab); err != nil {
		t.Fatal(err)
	}
	c.setPolicy()
	if got := c.fleet.Policy.Tenants[0].NetworkPolicy; got != quota.PolicyOptional {
		t.Errorf("the tenant has networkPolicy %q", got)
	}
	p := c.policyClient()
	if line := strings.Join(p.arguments, " "); p.program != "/bin/unnest" || !strings.HasPrefix(line, "hostd policy run --server 10.200.0.1:7443 ") || !strings.Contains(line, "--http "+policyReady) {
		t.Errorf("the client is %s %s", p.program, line)
	}
	for range 2 { // up, and repair
		if err := c.enrollPolicyClient(); err != nil {
			t.Fatal(err)
		}
	}
	if names, _ := c.Health(t.Context()); names[0] != daemonName || len(names) != 7 {
		t.Errorf("components %v", names)
	}
}
