package servicepath

import (
	"net/netip"
	"os/exec"
	"strings"
	"testing"

	"github.com/containernetworking/plugins/pkg/ns"
)

// sourcesOf are the sources of the pods a and b.
var sourcesOf = map[string][]netip.Addr{
	"a": {netip.MustParseAddr("10.201.3.1"), netip.MustParseAddr("fd00:201::3:1")},
	"b": {netip.MustParseAddr("10.201.3.2"), netip.MustParseAddr("fd00:201::3:2")},
}

func newWorldWithSources(t *testing.T) *world {
	w := newWorld(t)
	w.pathA.Sources, w.pathB.Sources = sourcesOf["a"], sourcesOf["b"]
	return w
}

// Connections to services have the pod's source outside the guest, also those to pods of the
// guest, which the host filters then.
func TestSources(t *testing.T) {
	w := newWorldWithSources(t)
	for _, n := range []ns.NetNS{w.guest, w.sw} {
		w.run(n, "sysctl -qw net.ipv4.conf.all.rp_filter=0 net.ipv4.conf.default.rp_filter=0")
	}
	w.run(w.guest, "sysctl -qw net.ipv4.conf.eth0.rp_filter=1") // as some distributions set it
	w.addPaths()
	w.serveAll()
	for i, f := range families {
		source := sourcesOf["a"][i].String()
		for _, network := range []string{"tcp", "udp"} {
			for _, c := range []struct {
				name     string
				from     ns.NetNS
				to, port string
				want     string
			}{
				{"service in the guest", w.a, f.tob, "80", "b " + source},
				{"service elsewhere", w.a, f.toRemote, "80", "remote " + source},
				{"service of the pod itself", w.a, f.toSelf, "80", "a " + source},
				{"service of another pod of the guest", w.b, f.toSelf, "80", "a " + sourcesOf["b"][i].String()},
				{"no such service", w.a, f.none, "80", "connection refused"},
				{"host port keeps the client's address", w.client, f.guest, "80", "a " + f.client},
				{"host port from another pod", w.b, f.guest, "80", "a " + f.b},
				{"past the guest, from elsewhere", w.client, f.a, "8080", "a " + f.client},
				{"past the guest, to a pod", w.a, f.remote, "8080", "remote " + f.a},
				{"probe from the guest", w.guest, f.a, "8080", "a " + f.guest},
				{"service from the guest", w.guest, f.tob, "80", "b " + f.guest},
			} {
				if got := w.ask(c.from, network, c.to, c.port); got != c.want && !(c.want == "connection refused" && strings.Contains(got, c.want)) {
					t.Errorf("%s, %s: %s: got %q, want %q", f.name, network, c.name, got, c.want)
				}
			}
		}
	}
	w.in(w.guest, func() error { return w.pathA.Check(w.a) })
	w.run(w.guest, "ip neigh del proxy 10.201.3.1 dev eth0")
	w.in(w.guest, func() error {
		if err := w.pathA.Check(w.a); err == nil || !strings.Contains(err.Error(), "does not answer for it") {
			t.Errorf("without the answers for the source: got %v", err)
		}
		return nil
	})
}

// A guest whose NIC is not in the subnet of a source cannot answer for it.
func TestSourceElsewhere(t *testing.T) {
	w := newWorld(t)
	w.pathA.Sources = []netip.Addr{netip.MustParseAddr("192.0.2.9"), netip.MustParseAddr("2001:db8::9")}
	w.addPaths()
	w.serveAll()
	for _, f := range families {
		if got := w.ask(w.a, "tcp", f.toRemote, "80"); got != "remote "+f.guest {
			t.Errorf("%s: got %q, want the guest's address", f.name, got)
		}
	}
}

// output returns what a command prints in the guest; nothing if it fails, as ip does for a
// table without routes.
func (w *world) output(command string) string {
	w.t.Helper()
	var out []byte
	w.in(w.guest, func() error {
		words := strings.Fields(command)
		out, _ = exec.Command(words[0], words[1:]...).Output()
		return nil
	})
	return string(out)
}

// sourceState lists what belongs to sources in the guest.
func (w *world) sourceState() string {
	w.t.Helper()
	var all []string
	for _, command := range []string{
		"ip neigh show proxy", "ip -6 neigh show proxy", "ip route show table 30063", "ip -6 route show table 30063",
	} {
		all = append(all, strings.Fields(w.output(command))...)
	}
	w.in(w.guest, func() error {
		have, err := listSources()
		for _, s := range have {
			all = append(all, s.path, s.addr.String())
		}
		return err
	})
	return strings.Join(all, " ")
}

func TestSourcesEndWithTheirPath(t *testing.T) {
	w := newWorldWithSources(t)
	w.addPaths()
	w.addPaths() // in place of those
	del := func(o Owner, pod ns.NetNS) { w.in(w.guest, func() error { return Del(o, pod) }) }
	has := func(what string, a, b bool) {
		t.Helper()
		for i, want := range map[string]bool{"10.201.3.1": a, "10.201.1.1": a, "fd00:201::3:1": a, "10.201.3.2": b, "fd00:201::1:2": b} {
			if got := strings.Contains(w.sourceState(), i); got != want {
				t.Errorf("%s: has %s: %t, want %t: %s", what, i, got, want, w.sourceState())
			}
		}
	}
	has("both", true, true)
	w.run(w.guest, "ip link del "+w.pathA.Owner.guestEnd()) // as if the pod's namespace had ended
	del(w.pathA.Owner, nil)
	has("one was deleted", false, true)
	w.run(w.guest, "ip link del "+w.pathB.Owner.guestEnd())
	w.in(w.guest, func() error { return Reap("net", func(Owner) bool { return true }) })
	if got := w.sourceState(); got != "" {
		t.Errorf("left after Reap: %s", got)
	}
	if rules := w.output("ip rule") + w.output("ip -6 rule"); strings.Contains(rules, "30063") {
		t.Errorf("left after Reap: %s", rules)
	}
}

// The table with sources works after nft has saved and restored it, and takes paths then.
func TestRestoreSources(t *testing.T) {
	w := newWorldWithSources(t)
	w.addPaths()
	w.serveAll()
	for _, flush := range []string{"", "delete table inet unnest-services\n"} {
		saved := w.nft(w.guest, "", "list", "table", "inet", tableName)
		w.nft(w.guest, flush+saved, "-f", "-")
		if got := w.nft(w.guest, "", "list", "table", "inet", tableName); flush != "" && got != saved {
			t.Errorf("saved:\n%s\nrestored:\n%s", saved, got)
		}
		for range 2 {
			for i, f := range families {
				if got, want := w.ask(w.a, "tcp", f.tob, "80"), "b "+sourcesOf["a"][i].String(); got != want {
					t.Errorf("%s: got %q, want %q", f.name, got, want)
				}
			}
			w.addPaths()
		}
	}
}
