package trace

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// Objects are read from YAML as from JSON: a list, one object, or several documents.
func TestKubectlYAML(t *testing.T) {
	pod := func(name string) string {
		return "apiVersion: v1\nkind: Pod\nmetadata:\n  name: " + name + "\n  namespace: shop\nspec:\n  containers:\n  - name: c\n    resources:\n      requests: {cpu: 1, memory: 2Gi}\n"
	}
	list := "apiVersion: v1\nitems:\n- " + strings.TrimSuffix(strings.ReplaceAll(pod("a"), "\n", "\n  "), "  ") + "kind: List\n"
	for _, c := range []struct{ text, want string }{
		{pod("a"), "shop a: c=1/2048\n"},
		{"---\n# made by hand\n" + pod("a") + "---\n" + pod("b") + "---\n", "shop a: c=1/2048\nshop b: c=1/2048\n"},
		{list, "shop a: c=1/2048\n"},
		{"items: []\nkind: List\n---\n" + pod("a"), "shop a: c=1/2048\n"},
	} {
		if format := formatOf([]byte(c.text)); format != kubectlFormat {
			t.Errorf("%q is taken for %q", c.text, format)
		}
		users, _, err := readText(t, c.text, Options{})
		if err != nil || show(users) != c.want {
			t.Errorf("%q: got %q, %v; want %q", c.text, show(users), err, c.want)
		}
	}
	if _, _, err := readText(t, "kind: Pod\n\tmetadata: [", Options{}); err == nil || !strings.Contains(err.Error(), "yaml") {
		t.Errorf("broken YAML: error %v", err)
	}
}

// The directories that "kubectl cluster-info dump --output-directory" and must-gather write are read
// with all that is in them. Files without objects do not matter there; broken ones do.
func TestKubectlDirectories(t *testing.T) {
	items := `{"kind":"PodList","apiVersion":"v1","metadata":{},"items":[` + strings.ReplaceAll(podJSON("web", "", ""), `"kind":"Pod",`, "") + `]}`
	yaml := func(name string) string {
		return "---\napiVersion: v1\nkind: Pod\nmetadata: {name: " + name + ", namespace: shop, uid: u-" + name + "}\nspec:\n  containers:\n  - name: c\n    resources: {requests: {cpu: 1, memory: 1Gi}}\n"
	}
	for name, files := range map[string]map[string]string{
		"cluster-info": {"nodes.json": `{"kind":"NodeList","apiVersion":"v1","items":[{"metadata":{"name":"n"},"status":{"capacity":{"cpu":"2","memory":"4Gi"},"allocatable":{"cpu":"2","memory":"4Gi"}}}]}`,
			"shop/pods.json": items, "shop/events.json": `{"kind":"EventList","items":[{"metadata":{"name":"e"}}]}`, "shop/web/logs.txt": "==== START logs ====\n{"},
		"must-gather": {"version": "4.20", "timestamp": "now", "a/namespaces/shop/core/pods.yaml": "apiVersion: v1\nkind: PodList\nitems:\n- metadata: {name: web, namespace: shop, uid: u-web}\n  spec:\n    containers:\n    - name: c\n      resources: {requests: {cpu: 1, memory: 1Gi}}\n",
			"a/namespaces/shop/pods/web/web.yaml": yaml("web"), "a/notes.yaml": "some: thing\n", "a/list.json": "[1]", ".hidden/pods.yaml": yaml("hidden"),
			"a/cluster-scoped-resources/core/nodes/n.yaml": "apiVersion: v1\nkind: Node\nmetadata: {name: node-1}\nstatus: {capacity: {cpu: 2, memory: 4Gi}, allocatable: {cpu: 2, memory: 4Gi}}\n"},
	} {
		dir := t.TempDir()
		for path, text := range files {
			path = filepath.Join(dir, path)
			if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		if format, _, err := Guess(t.Context(), dir, nil); format != kubectlFormat {
			t.Errorf("%s: the format is %q, %v", name, format, err)
		}
		users, rep, err := Read(t.Context(), kubectlFormat, []string{dir}, Options{})
		if err != nil || show(users) != "shop web: c=1/1024\n" || len(rep.Nodes) != 1 {
			t.Errorf("%s: got %q, %d nodes, %v", name, show(users), len(rep.Nodes), err)
		}
		broken := filepath.Join(dir, "broken.json")
		if err := os.WriteFile(broken, []byte(`{"kind":"Pod"`), 0o644); err != nil {
			t.Fatal(err)
		}
		if _, _, err := Read(t.Context(), kubectlFormat, []string{dir}, Options{}); err == nil || !strings.Contains(err.Error(), "broken.json") {
			t.Errorf("%s: error %v, want one that names the broken file", name, err)
		}
	}
}

// An end without a start is noted; if most ends are such, a remark says so. Of tasks whose events are
// in any order, only those count that never start.
func TestEndsWithoutStarts(t *testing.T) {
	for _, c := range []struct {
		ordered bool
		events  string // task and s or e, at the times 0, 1, ...
		lost    int
		warned  bool
	}{
		{true, "as ae bs be", 0, false}, {true, "ae as be bs ce cs", 3, true}, {true, "as ae bs be ce", 1, false},
		{false, "ae as be bs", 0, false}, {false, "ae be cs", 2, true}, {false, "as ae bs be ce ce", 1, false},
	} {
		l := newTaskStates[string](Period{0, time.Hour}.span(1), c.ordered)
		for at, e := range strings.Fields(c.events) {
			how := starts
			if e[1] == 'e' {
				how = ends
			}
			l.event(e[:1], int64(at), how, request{}, "")
		}
		var rep Report
		l.finish(&rep)
		if warned := len(rep.Remarks) > 0; rep.notes[NeverStarted] != c.lost || warned != c.warned {
			t.Errorf("%q, ordered %v: %d lost ends, remarks %q", c.events, c.ordered, rep.notes[NeverStarted], rep.Remarks)
		}
	}
}

// DaemonSets that request no memory are named: VMs have less room than planned.
func TestDaemonSetsWithoutMemory(t *testing.T) {
	blind := strings.Replace(daemonJSON("agent-1", "agent", "u", "n"), `,"memory":"1Gi"`, "", 1)
	for text, want := range map[string]bool{blind: true, daemonJSON("agent-1", "agent", "u", "n"): false} {
		_, rep, err := readText(t, listJSON(text, podJSON("web", "", "")), Options{})
		if got := strings.Contains(strings.Join(rep.Remarks, " "), "request no memory (shop/agent)"); err != nil || got != want {
			t.Errorf("%s: remarks %q, %v", text, rep.Remarks, err)
		}
	}
}
