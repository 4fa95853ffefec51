package quota_test

import (
	"bytes"
	"errors"
	"net/netip"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"unnest.io/unnest/internal/hostd/quota"
)

var node3 = quota.Guest{
	Name: "node3", Tenant: "default", Index: 3, QMP: "/run/q: 3", Pool: 4, TAP: "tap3", MAC: "52:54:00:00:00:03",
	Addresses: []netip.Addr{netip.MustParseAddr("10.9.0.3"), netip.MustParseAddr("fd00::3")},
}

const tenants = `# the tenants
tenants:
  - {name: default, bridge: br0} # one
`

const added = `  - name: node3
    tenant: default
    qmp: "/run/q: 3"
    index: 3
    tap: tap3
    mac: 52:54:00:00:00:03
    addresses:
    - 10.9.0.3
    - fd00::3
`

// A guest is added after the others, in their layout, and nothing else changes. Removing it
// restores the file.
func TestAddGuest(t *testing.T) {
	for name, before := range map[string]string{
		"no list":         tenants,
		"empty list":      tenants + "guests: [ ] # none yet\n\npool: 4\n",
		"no end of line":  tenants + "guests: []",
		"guests":          tenants + "guests: # ours\n  # the first\n  - name: node1 # first\n    tenant: default\n\n    index: 1\n    qmp: /q\n    #pool: 9\n\n# the end\npool: 4\n",
		"without indent":  tenants + "guests:\n- {name: node1, tenant: default,\n   index: 1, qmp: /q}\npool: 4\n",
		"dash on a line":  tenants + "guests:\n  -\n    name: node1\n    tenant: default\n    index: 1\n    qmp: /q\n",
		"before the rest": "guests:\n    - {name: node1, tenant: default, index: 1, qmp: /q}\n" + tenants,
	} {
		t.Run(name, func(t *testing.T) {
			was := mustParse(t, before)
			content, err := quota.AddGuest("x.yaml", []byte(before), node3)
			if err != nil {
				t.Fatal(err)
			}
			p := mustParse(t, string(content))
			if len(p.Guests) != len(was.Guests)+1 {
				t.Fatalf("got %d guests in:\n%s", len(p.Guests), content)
			}
			if diff := cmp.Diff(node3, p.Guests[len(was.Guests)], addrs); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			for line := range strings.Lines(before) { // with its comments
				if !strings.Contains(string(content), strings.TrimSpace(strings.ReplaceAll(line, " [ ]", ""))) && !strings.Contains(line, "[]") {
					t.Errorf("line %q is lost in:\n%s", line, content)
				}
			}
			again, err := quota.RemoveGuest("x.yaml", content, "node3")
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(was, mustParse(t, string(again)), addrs); diff != "" {
				t.Errorf("after removal (-want +got):\n%s", diff)
			}
			if len(was.Guests) > 0 && !bytes.Equal(again, []byte(before)) {
				t.Errorf("after removal:\n%s\nwant:\n%s", again, before)
			}
		})
	}
	content, err := quota.AddGuest("x.yaml", []byte(tenants), node3)
	if diff := cmp.Diff(tenants+"guests:\n"+added, string(content)); diff != "" || err != nil {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
}

// Any guest can be removed, with the comments among its keys.
func TestRemoveGuest(t *testing.T) {
	const file = tenants + "guests:\n  - {name: a, tenant: default, index: 1, qmp: /a}\n  # of b\n  - name: b\n    tenant: default\n    # inside\n    index: 2\n    qmp: /b\n\n  - {name: c, tenant: default, index: 3, qmp: /c}\npool: 4\n"
	for guest, want := range map[string]string{
		"a": tenants + "guests:\n  # of b\n  - name: b\n    tenant: default\n    # inside\n    index: 2\n    qmp: /b\n\n  - {name: c, tenant: default, index: 3, qmp: /c}\npool: 4\n",
		"b": tenants + "guests:\n  - {name: a, tenant: default, index: 1, qmp: /a}\n  # of b\n\n  - {name: c, tenant: default, index: 3, qmp: /c}\npool: 4\n",
		"c": tenants + "guests:\n  - {name: a, tenant: default, index: 1, qmp: /a}\n  # of b\n  - name: b\n    tenant: default\n    # inside\n    index: 2\n    qmp: /b\n\npool: 4\n",
	} {
		content, err := quota.RemoveGuest("x.yaml", []byte(file), guest)
		if diff := cmp.Diff(want, string(content)); diff != "" || err != nil {
			t.Errorf("%s: %v (-want +got):\n%s", guest, err, diff)
		}
	}
}

func TestEditRefuses(t *testing.T) {
	const flow = tenants + "guests: [{name: node1, tenant: default, index: 1, qmp: /q}]\n"
	other := func(change func(*quota.Guest)) quota.Guest {
		g := node3
		change(&g)
		return g
	}
	for want, c := range map[string]struct {
		file  string
		guest quota.Guest
	}{
		"edit the file by hand":           {flow, node3},
		"guest node1 is in x.yaml":        {flow, other(func(g *quota.Guest) { g.Name = "node1" })},
		`no such tenant: "nobody"`:        {tenants, other(func(g *quota.Guest) { g.Tenant = "nobody" })},
		"index: want a whole number":      {tenants, other(func(g *quota.Guest) { g.Index = 0 })},
		"one of the keys qmp and libvirt": {tenants, other(func(g *quota.Guest) { g.QMP = "" })},
		"x.yaml:1: a: unknown key":        {"a: 1\n", node3},
		"x.yaml:1: edit the file by hand": {`{tenants: [{name: default, bridge: br0}], guests: []}`, node3},
	} {
		if content, err := quota.AddGuest("x.yaml", []byte(c.file), c.guest); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v and %q, want %q", err, content, want)
		}
	}
	if _, err := quota.RemoveGuest("x.yaml", []byte(tenants), "node1"); !errors.Is(err, quota.ErrGuest) {
		t.Errorf("got %v, want ErrGuest", err)
	}
	if _, err := quota.RemoveGuest("x.yaml", []byte(flow), "node1"); err == nil || !strings.Contains(err.Error(), "edit the file by hand") {
		t.Errorf("got %v", err)
	}
}

// The file that we deploy keeps all its comments.
func TestEditDeployedFile(t *testing.T) {
	before, err := os.ReadFile("../../../deploy/hostd.yaml")
	if err != nil {
		t.Fatal(err)
	}
	g := node3
	g.Addresses = []netip.Addr{netip.MustParseAddr("10.201.0.9")}
	after, err := quota.AddGuest("hostd.yaml", before, g)
	if err != nil || !bytes.HasPrefix(after, before) {
		t.Fatalf("got %v and:\n%s", err, after)
	}
	removed, err := quota.RemoveGuest("hostd.yaml", after, "node3")
	if err != nil || !bytes.Equal(removed, append(before, "guests: []\n"...)) {
		t.Errorf("got %v and:\n%s", err, removed)
	}
}

// Whatever the file, an edit that succeeds makes a file with the guest, and its removal one
// without.
func FuzzEdit(f *testing.F) {
	for _, text := range []string{small, full, tenants, tenants + "guests: []", "tenants: [{name: default, bridge: b}]\nguests:\n- {name: a, tenant: default, index: 1, qmp: /q}"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		content, err := quota.AddGuest("x.yaml", []byte(text), node3)
		if err != nil {
			return
		}
		was, is := mustParse(t, text), mustParse(t, string(content))
		if len(is.Guests) != len(was.Guests)+1 || is.Guests[len(was.Guests)].Name != "node3" {
			t.Errorf("got %+v", is.Guests)
		}
		if again, err := quota.RemoveGuest("x.yaml", content, "node3"); err != nil || len(mustParse(t, string(again)).Guests) != len(was.Guests) {
			t.Errorf("remove it again: %v", err)
		}
	})
}
