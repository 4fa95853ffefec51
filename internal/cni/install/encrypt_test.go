package install

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/netip"
	"regexp"
	"slices"
	"strings"
	"testing"

	"unnest.io/unnest/internal/cni/loopback"
)

func apiNode(name, key string, addresses ...string) string {
	for i, a := range addresses {
		addresses[i] = `{"type": "InternalIP", "address": "` + a + `"}`
	}
	return `{"metadata": {"name": "` + name + `", "annotations": {"unnest.io/wireguard-key": "` + key + `", "other": "x"}}, "status": {"addresses": [{"type": "Hostname", "address": "` +
		name + `"}, {"type": "ExternalIP", "address": "192.0.2.1"}` + strings.Join(append([]string{""}, addresses...), ", ") + `]}}`
}

// All pages of the list are read, then changes that matter. An end without an error is none.
func TestFollow(t *testing.T) {
	s, r := newAPIServer(t)
	var asked []string
	event := func(kind, object string) string { return `{"type": "` + kind + `", "object": ` + object + "}\n" }
	events := event("MODIFIED", strings.Replace(apiNode("b", "K2"), "other", "another", 1)) + event("MODIFIED", apiNode("b", "K3")) +
		event("ADDED", apiNode("c", "K4", "fd00::3", "10.0.0.3")) + event("DELETED", apiNode("a", "K1", "10.0.0.1"))
	s.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		asked = append(asked, q.Method+" "+q.URL.Path+" "+regexp.MustCompile("Seconds=[345][0-9]{2}").ReplaceAllString(q.URL.RawQuery, "Seconds=N")+" "+q.Header.Get("Authorization"))
		answer := `{"metadata": {"resourceVersion": "7"}, "items": [` + apiNode("b", "K2") + "]}"
		switch {
		case q.URL.Query().Has("watch"):
			answer = events
		case q.URL.Query().Get("continue") == "":
			answer = `{"metadata": {"resourceVersion": "7", "continue": "next"}, "items": [` + apiNode("a", "K1", "10.0.0.1") + "]}"
		}
		_, _ = io.WriteString(w, answer) // an error is the client's
	})
	var got []string
	follow := func() error {
		asked, got = nil, nil
		return r.follow(t.Context(), func(nodes []loopback.Node) {
			slices.SortFunc(nodes, func(a, b loopback.Node) int { return strings.Compare(a.Name, b.Name) })
			got = append(got, fmt.Sprint(nodes))
		})
	}
	if err := follow(); err != nil {
		t.Error(err)
	}
	want := []string{
		"[{a K1 [10.0.0.1]} {b K2 []}]", "[{a K1 [10.0.0.1]} {b K3 []}]", "[{a K1 [10.0.0.1]} {b K3 []} {c K4 [fd00::3 10.0.0.3]}]", "[{b K3 []} {c K4 [fd00::3 10.0.0.3]}]",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got %q\nwant %q", got, want)
	}
	if !slices.Equal(asked, []string{
		"GET /api/v1/nodes limit=100 Bearer secret", "GET /api/v1/nodes continue=next&limit=100 Bearer secret",
		"GET /api/v1/nodes resourceVersion=7&timeoutSeconds=N&watch=true Bearer secret",
	}) {
		t.Errorf("asked %q", asked)
	}
	events = event("ERROR", `{"kind": "Status", "status": "Failure", "message": "too old resource version", "code": 410}`)
	if err := follow(); err == nil || !strings.Contains(err.Error(), "watch nodes: too old") || len(got) != 1 {
		t.Errorf("%v, %q", err, got)
	}
	s.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, `{"message": "nodes is forbidden"}`, http.StatusForbidden)
	})
	if err := follow(); err == nil || !strings.Contains(err.Error(), "403 Forbidden: nodes is forbidden") || len(got) != 0 {
		t.Errorf("%v, %q", err, got)
	}
}

// A node has a label for fractions only while the device has its peers. Its key is published before: others wait for it. A device that
// somebody has removed gets its peers again.
func TestEncryption(t *testing.T) {
	key, broken, set := "K1", error(nil), 0
	e := newEncryption("a", slog.New(slog.DiscardHandler))
	e.err = errors.New("not known yet")
	e.device = func(string) (string, error) { return key, broken }
	e.setPeers = func(_ string, all []loopback.Node) error {
		if set++; all[0].Name == "bad" {
			return errors.New("no such peer")
		}
		return nil
	}
	want := func(when, text string, peers int) {
		t.Helper()
		for _, chained := range []bool{true, false} {
			nics, err := e.ensure(func(context.Context) (NICs, error) { return NICs{Host: "network"}, nil }, chained)(t.Context())
			if got := fmt.Sprint(nics.Host, " ", nics.Key, " ", err); chained && got != text {
				t.Errorf("%s: got %q, want %q", when, got, text)
			} else if host, _, _ := strings.Cut(text, " "); nics.Host != host || err != nil && !chained {
				t.Errorf("%s: pods do not get NICs: %q", when, got)
			}
		}
		if set != peers {
			t.Errorf("%s: peers set %d times, want %d", when, set, peers)
		}
	}
	want("before the nodes are known", " K1 not known yet", 0)
	_, _ = e.update([]loopback.Node{{Name: "b"}})
	want("then", "network K1 <nil>", 1)
	_, _ = e.update([]loopback.Node{{Name: "bad"}})
	want("peers are refused", " K1 no such peer", 4)
	_, _ = e.update([]loopback.Node{{Name: "b"}})
	want("not any more", "network K1 <nil>", 5)
	key = "K2"
	want("the device is another", "network K2 <nil>", 6)
	broken = errors.New("no WireGuard")
	want("the kernel has none", "  no WireGuard", 6)
	_, _ = e.update([]loopback.Node{{Name: "b"}, {Name: "c"}})
	broken = nil
	want("it has changed meanwhile", "network K2 <nil>", 7)
	<-e.known
}

// The key is reported with the label, and stays while the device is not there.
func TestReportKey(t *testing.T) {
	s, r := newAPIServer(t)
	for _, h := range []health{{nics: NICs{Key: "K1"}, encrypted: true}, {nics: NICs{Key: "K1", Host: "network"}, encrypted: true}, {err: errors.New("gone"), encrypted: true}} {
		if err := r.report(t.Context(), h); err != nil {
			t.Fatal(err)
		}
		if host, ok := s.labels[HostLabel]; !ok || host != h.nics.Host || s.annotations[KeyAnnotation] != "K1" {
			t.Errorf("%+v: labels %v, annotations %v", h, s.labels, s.annotations)
		}
	}
	if len(s.asked) != 3 {
		t.Errorf("%d reports", len(s.asked))
	}
}

func TestNodeOfObject(t *testing.T) {
	var o object
	o.Metadata.Name = "new"
	if n := o.node(); n.Name != "new" || n.Key != "" || len(n.Internal) != 0 {
		t.Errorf("a node without a status is %+v", n)
	}
	o.Status = []byte(`{"addresses": [{"type": "InternalIP", "address": "x"}, {"type": "InternalIP", "address": "10.0.0.1"}]}`)
	if n := o.node(); !slices.Equal(n.Internal, []netip.Addr{netip.MustParseAddr("10.0.0.1")}) {
		t.Errorf("got %+v", n)
	}
}
