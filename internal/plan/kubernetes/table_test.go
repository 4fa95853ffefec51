package kubernetes

import (
	"fmt"
	"os"
	"reflect"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"unnest.io/unnest/internal/plan/cluster"
)

// docs/plan.md has the table, word by word.
func TestTableOfDocs(t *testing.T) {
	page, err := os.ReadFile("../../../docs/plan.md")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(page), markdown()) {
		t.Errorf("docs/plan.md lacks this table:\n%s", markdown())
	}
	for d, row := range table[podRoom:] {
		if row.fields == "" || row.how == "" || meaning[row.how] == "" {
			t.Errorf("row %d of the table is not complete: %+v", d, row)
		}
	}
}

// placeless are the fields of a pod's spec that do not decide where it may run.
var placeless = strings.Fields("EphemeralContainers RestartPolicy TerminationGracePeriodSeconds ActiveDeadlineSeconds DNSPolicy ServiceAccountName DeprecatedServiceAccount " +
	"AutomountServiceAccountToken NodeName SecurityContext ImagePullSecrets Hostname Subdomain HostAliases DNSConfig ReadinessGates EnableServiceLinks SetHostnameAsFQDN OS HostUsers " +
	"HostnameOverride SchedulingGates EvictionResponders HostPID HostIPC ShareProcessNamespace")

// placed are the fields that do, and the rows of the table about them.
var placed = map[string][]demand{"Volumes": {attachedVolumes, sharedFiles, unknownVolume, cloudDisk}, "InitContainers": {podRoom, hostPorts}, "Containers": {podRoom, storageRoom, hostPorts}, "NodeSelector": {nodeSelector},
	"HostNetwork": {hostPorts}, "Affinity": {nodeAffinity, antiAffinityNode, affinityNode, affinityFirst, preferences}, "SchedulerName": {otherScheduler}, "Tolerations": {tolerations}, "PriorityClassName": {priority}, "Priority": {priority},
	"RuntimeClassName": {nodeSelector}, "PreemptionPolicy": {priority}, "Overhead": {podRoom}, "TopologySpreadConstraints": {spreadNode, spreadZone}, "ResourceClaims": {extendedResources}, "Resources": {podRoom}, "SchedulingGroup": {podGroup}}

// Every field of a pod's spec is in the table, or does not matter for its place. A new version of
// Kubernetes adds some.
func TestFieldsOfASpec(t *testing.T) {
	spec := reflect.TypeFor[corev1.PodSpec]()
	for i := range spec.NumField() {
		name := spec.Field(i).Name
		without := false
		for _, field := range placeless {
			without = without || field == name
		}
		if without == (placed[name] != nil) {
			t.Errorf("field %s of a pod's spec: say whether it decides where the pod may run", name)
		}
	}
}

// A field that this version does not know is named, wherever it is in the spec, and holds the node.
func TestUnknownFields(t *testing.T) {
	for _, c := range []struct{ spec, want string }{
		{`"containers":[{"name":"c"}]`, ""},
		{`"containers":[{"name":"c"}],"nodeWish":{"a":1}`, "spec.nodeWish"},
		{`"containers":[{"name":"c","pinnedTo":"numa"}]`, "spec.containers[0].pinnedTo"},
		{`"containers":[{"name":"c"}],"affinity":{"rackAffinity":{}}`, "spec.affinity.rackAffinity"},
		{`"containers":[{"name":"c"}],"topologySpreadConstraints":[{"maxSkew":1,"topologyKey":"kubernetes.io/hostname","whenUnsatisfiable":"DoNotSchedule","per":"team"}]`, "spec.topologySpreadConstraints[0].per"},
	} {
		p, err := ParsePod([]byte(`{"metadata":{"name":"p","namespace":"n","managedBy":{}},"spec":{` + c.spec + `},"status":{"mood":"good"}}`))
		if err != nil {
			t.Fatal(err)
		}
		d := NewDump()
		d.Plan(p)
		var named []string
		for _, r := range d.Finish().Rules {
			if r.How == cluster.Not && strings.Contains(r.What, "does not know") {
				named = append(named, r.What)
			}
		}
		if c.want == "" && len(named)+len(p.Origin.Held) > 0 || c.want != "" && (len(named) != 1 || !strings.HasSuffix(named[0], ": "+c.want) || !strings.HasSuffix(p.Origin.Held, c.want)) {
			t.Errorf("%s: named %q, held by %q; want %q", c.spec, named, p.Origin.Held, c.want)
		}
	}
}

// markdown returns the table in Markdown.
func markdown() string {
	var text strings.Builder
	text.WriteString("| demand of a pod | plans |\n|---|---|\n")
	for _, row := range table[podRoom:] {
		fmt.Fprintf(&text, "| %s | %s |\n", row.fields, meaning[row.how])
	}
	return text.String()
}

// meaning explains the ways to honour a demand.
var meaning = map[cluster.Honoured]string{
	cluster.ByVM:     "honoured on each VM",
	cluster.Stricter: "honoured on each VM, more strictly than Kubernetes demands",
	cluster.ByPool:   "honoured, because each pod stays in its pool",
	cluster.Stays:    "honoured, because the node stays as it is",
	cluster.Not:      "not honoured: named with `!`, and the node stays as it is",
	cluster.Ignored:  "named and left out",
	cluster.Moot:     "named; decides nothing",
	cluster.Later:    "named; matters when pods move",
}
