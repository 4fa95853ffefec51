package install

import (
	"bytes"
	"encoding/json"
	"encoding/pem"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"unnest.io/unnest/internal/hostapi/hostdpb"
)

var noon = time.Date(2026, 11, 23, 12, 0, 0, 0, time.UTC)

func TestCondition(t *testing.T) {
	expires := noon.Add(29*24*time.Hour + time.Minute)
	for _, tt := range []struct {
		found  health
		status string
		want   string
	}{
		{health{}, "True", "NICsAvailable: pods can get NICs"},
		{health{nics: NICs{Known: true, Attached: 2, Free: 6, Expires: expires}}, "True",
			"NICsAvailable: pods have 2 NICs and can get 6 more; the node's credentials are valid for 29 days"},
		{health{nics: NICs{Known: true, Attached: 8, Limited: "no free slot of 8", Expires: expires}}, "True",
			"AllNICsInUse: pods have all 8 NICs: no free slot of 8; the node's credentials are valid for 29 days"},
		{health{nics: NICs{Expires: expires}, err: errors.Join(errors.New("no daemon"), errors.New("really"))}, "False",
			"NICsUnavailable: pods cannot get NICs: no daemon; really; the node's credentials are valid for 29 days"},
		{health{nics: NICs{Expires: noon.Add(-time.Hour)}, err: errors.New("expired")}, "False", "NICsUnavailable: pods cannot get NICs: expired"},
	} {
		c := tt.found.network(noon)
		if got := c.reason + ": " + c.message; got != tt.want || c.status != tt.status {
			t.Errorf("%+v: got %s, %s\nwant %s, %s", tt.found, c.status, got, tt.status, tt.want)
		}
	}
	for want, found := range map[string]health{
		"True PluginChained: tunnels can connect the fractions of split pods":                                 {chained: true},
		"False PluginNotChained: tunnels cannot connect the fractions of split pods: /etc/cni has no network": {chained: true, err: errors.New("/etc/cni has no network")},
	} {
		all := found.conditions(noon)
		if got := all[0].status + " " + all[0].reason + ": " + all[0].message; len(all) != 1 || got != want {
			t.Errorf("without a host daemon: got %s and %d conditions\nwant %s alone", got, len(all), want)
		}
	}
	long := health{err: errors.New(strings.Repeat("ä", 1<<20))}
	if c := long.network(noon); len(c.message) > maxMessage {
		t.Errorf("a long error makes a message of %d bytes", len(c.message))
	}
}

// A node says whether NetworkPolicies have an effect, and does not claim it without having heard so.
func TestPoliciesCondition(t *testing.T) {
	for state, want := range map[hostdpb.PolicyState]string{
		hostdpb.PolicyState_POLICY_STATE_ENFORCED:    "True PolicyClientConnected",
		hostdpb.PolicyState_POLICY_STATE_NO_CLIENT:   "False NoPolicyClient",
		hostdpb.PolicyState_POLICY_STATE_NONE:        "False NotConfigured",
		hostdpb.PolicyState_POLICY_STATE_UNSPECIFIED: "Unknown HostDaemonSilent",
	} {
		c := health{nics: NICs{Policies: state}}.policies()
		if got := c.status + " " + c.reason; got != want || c.kind != PoliciesType || c.message == "" {
			t.Errorf("%v: got %+v, want %s", state, c, want)
		}
	}
}

func TestCapacity(t *testing.T) {
	failed := errors.New("no daemon")
	for _, tt := range []struct {
		found   health
		before  NICs
		reserve int
		want    int // -1: unknown
	}{
		{health{}, NICs{}, 0, -1},
		{health{nics: NICs{Known: true, Attached: 2, Free: 6}}, NICs{}, 0, 8},
		{health{nics: NICs{Known: true, Attached: 2, Free: 6}}, NICs{}, 3, 5},
		{health{nics: NICs{Known: true, Attached: 2, Free: 6}}, NICs{}, 9, 0},
		{health{nics: NICs{Known: true, Attached: 2, Free: 6}, err: failed}, NICs{}, 0, 8},
		{health{err: failed}, NICs{}, 0, -1},
		{health{err: failed}, NICs{Known: true, Attached: 2, Free: 6}, 0, 2},
		{health{err: failed}, NICs{Known: true, Attached: 5, Free: 1}, 3, 3},
	} {
		got, known := tt.found.capacity(tt.before, tt.reserve)
		if !known {
			got = -1
		}
		if got != tt.want {
			t.Errorf("%+v after %+v: got %d, want %d", tt.found, tt.before, got, tt.want)
		}
	}
}

func TestMetrics(t *testing.T) {
	k := keeper{now: health{nics: NICs{Known: true, Attached: 2, Free: 6, Expires: noon}}}
	get := func() string {
		w := httptest.NewRecorder()
		k.metrics(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
		var samples []string
		for line := range strings.Lines(w.Body.String()) {
			if !strings.HasPrefix(line, "# HELP ") && !strings.HasPrefix(line, "# TYPE ") {
				samples = append(samples, strings.TrimSpace(line))
			}
		}
		return strings.Join(samples, ", ")
	}
	if got, want := get(), `unnest_node_ready 1, unnest_node_nics{state="attached"} 2, unnest_node_nics{state="free"} 6, `+
		"unnest_node_credentials_expire_seconds 1795435200"; got != want {
		t.Errorf("got %s\nwant %s", got, want)
	}
	k.now = health{err: errors.New("no daemon")}
	if got, want := get(), "unnest_node_ready 0"; got != want {
		t.Errorf("got %s\nwant %s", got, want)
	}
}

// apiServer is an API server that keeps what it is told.
type apiServer struct {
	*httptest.Server
	asked  []string // method, path, type and token of each request
	status map[string]any
	labels map[string]string
	refuse bool

	annotations map[string]string
}

func newAPIServer(t *testing.T) (*apiServer, *reporter) {
	t.Helper()
	s := &apiServer{}
	s.Server = httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.asked = append(s.asked, strings.Join([]string{r.Method, r.URL.EscapedPath(), r.Header.Get("Content-Type"), r.Header.Get("Authorization")}, " "))
		var node struct {
			Metadata struct{ Labels, Annotations map[string]string }
			Status   map[string]any
		}
		if err := json.NewDecoder(r.Body).Decode(&node); err != nil {
			t.Error(err)
		}
		s.status, s.labels, s.annotations = node.Status, node.Metadata.Labels, node.Metadata.Annotations
		if s.refuse {
			http.Error(w, `{"message": "nodes \"node1\" is forbidden"}`, http.StatusForbidden)
		}
	}))
	t.Cleanup(s.Close)
	dir := t.TempDir()
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})
	if err := errors.Join(os.WriteFile(filepath.Join(dir, "ca.crt"), ca, 0o600), os.WriteFile(filepath.Join(dir, "token"), []byte("secret\n"), 0o600)); err != nil {
		t.Fatal(err)
	}
	return s, &reporter{node: "node1", server: s.URL, account: dir, reserve: 1, now: func() time.Time { return noon }, changed: map[string]transition{}}
}

// condition returns the first condition of the two that the server was told, as text.
func (s *apiServer) condition(t *testing.T) string { t.Helper(); return s.conditions(t, 0) }

func (s *apiServer) conditions(t *testing.T, i int) string {
	t.Helper()
	conditions, ok := s.status["conditions"].([]any)
	if !ok || len(conditions) != 2 {
		t.Fatalf("the status is %v, want two conditions", s.status)
	}
	text, err := json.Marshal(conditions[i])
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestReport(t *testing.T) {
	s, r := newAPIServer(t)
	report := func(h health, at time.Duration, requests int) {
		t.Helper()
		r.now = func() time.Time { return noon.Add(at) }
		if err := r.report(t.Context(), h); err != nil || len(s.asked) != requests {
			t.Fatalf("got %v, %d requests, want %d", err, len(s.asked), requests)
		}
	}
	well, ill := health{nics: NICs{Known: true, Attached: 2, Free: 6}}, health{err: errors.New("no daemon")}
	report(well, 0, 1)
	if want := "PATCH /api/v1/nodes/node1/status application/strategic-merge-patch+json Bearer secret"; s.asked[0] != want {
		t.Errorf("got %s\nwant %s", s.asked[0], want)
	}
	want := `{"lastHeartbeatTime":"2026-11-23T12:00:00Z","lastTransitionTime":"2026-11-23T12:00:00Z","message":"pods have 2 NICs and can get 6 more",` +
		`"reason":"NICsAvailable","status":"True","type":"UnnestNetworkReady"}`
	if got := s.condition(t); got != want {
		t.Errorf("got %s\nwant %s", got, want)
	}
	for _, key := range []string{"capacity", "allocatable"} {
		if got, err := json.Marshal(s.status[key]); string(got) != `{"unnest.io/nic":"7"}` || err != nil {
			t.Errorf("%s is %s", key, got)
		}
	}
	want = `{"lastHeartbeatTime":"2026-11-23T12:00:00Z","lastTransitionTime":"2026-11-23T12:00:00Z","message":"the host daemon does not say whether it enforces NetworkPolicies",` +
		`"reason":"HostDaemonSilent","status":"Unknown","type":"UnnestNetworkPoliciesEnforced"}`
	if got := s.conditions(t, 1); got != want {
		t.Errorf("got %s\nwant %s", got, want)
	}
	report(well, time.Minute, 1) // nothing has changed
	report(well, heartbeat, 2)
	if got := s.condition(t); !strings.Contains(got, `"lastHeartbeatTime":"2026-11-23T12:05:00Z","lastTransitionTime":"2026-11-23T12:00:00Z"`) {
		t.Errorf("the heartbeat is %s", got)
	}
	report(ill, 6*time.Minute, 3)
	if got := s.condition(t); !strings.Contains(got, `"lastTransitionTime":"2026-11-23T12:06:00Z"`) || !strings.Contains(got, `"status":"False"`) {
		t.Errorf("without a daemon: %s", got)
	}
	if got, _ := json.Marshal(s.status["capacity"]); string(got) != `{"unnest.io/nic":"2"}` {
		t.Errorf("without a daemon the capacity is %s, want what pods have", got)
	}
	r.known = NICs{}
	report(ill, 12*time.Minute, 4)
	if s.labels != nil {
		t.Errorf("labels without a known host: %v", s.labels)
	}
	report(health{nics: NICs{Host: "f00"}}, 13*time.Minute, 5)
	report(ill, 14*time.Minute, 6)
	if s.labels[HostLabel] != "f00" {
		t.Errorf("labels %v, want the host that the daemon was", s.labels)
	}
	report(health{nics: NICs{Host: "network"}, chained: true}, 15*time.Minute, 7)
	report(health{err: errors.New("no network"), chained: true}, 16*time.Minute, 8)
	if host, ok := s.labels[HostLabel]; host != "" || !ok {
		t.Errorf("labels %v of a node that cannot connect fractions any more", s.labels)
	}
	if s.status["capacity"] != nil || s.status["allocatable"] != nil {
		t.Errorf("a capacity that is not known is %v", s.status)
	}
}

// The copy of the node's network goes with the DaemonSet, and stays when its pod is replaced or nobody knows.
func TestUnchain(t *testing.T) {
	for answer, gone := range map[string]bool{
		`200 {"metadata": {"name": "unnest-cni"}}`:                        false,
		`200 {"metadata": {"deletionTimestamp": "2026-11-29T12:00:00Z"}}`: true,
		"404 {}": true, "403 {}": true, "401 {}": true, "500 {}": false, "503": false,
	} {
		s, r := newAPIServer(t)
		code, text, _ := strings.Cut(answer, " ")
		s.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
			if got := q.Method + " " + q.URL.Path; got != "GET /apis/apps/v1/namespaces/unnest-system/daemonsets/unnest-cni" {
				t.Error("asked " + got)
			}
			status, _ := strconv.Atoi(code)
			w.WriteHeader(status)
			_, _ = w.Write([]byte(text))
		})
		n, _ := newNode(t)
		n.Chain = true
		for path, content := range map[string]string{filepath.Join(r.account, "namespace"): "unnest-system", n.installed(): "{}"} {
			check(t, os.WriteFile(path, []byte(content), 0o600))
		}
		n.undo(r, slog.New(slog.DiscardHandler))
		if _, err := os.Stat(n.installed()); (err != nil) != gone {
			t.Errorf("the API server answers %s: the copy is there: %v, want gone: %v", answer, err == nil, gone)
		}
	}
}

// A report that is refused is logged once and tried again, and pods get NICs meanwhile.
func TestReportIsRefused(t *testing.T) {
	s, r := newAPIServer(t)
	s.refuse = true
	var log bytes.Buffer
	k := keeper{report: r.report, log: slog.New(slog.NewTextHandler(&log, nil))}
	for range 2 {
		k.tell(t.Context(), health{})
	}
	want := `the API server answers 403 Forbidden: nodes \"node1\" is forbidden`
	if text := log.String(); len(s.asked) != 2 || strings.Count(text, "\n") != 1 || !strings.Contains(text, want) {
		t.Errorf("%d requests, log:\n%s", len(s.asked), text)
	}
	w := httptest.NewRecorder()
	k.health(w, nil)
	if w.Code != http.StatusOK {
		t.Errorf("health is %d", w.Code)
	}
	s.refuse = false
	k.tell(t.Context(), health{})
	if len(s.asked) != 3 || k.reported != "" {
		t.Errorf("%d requests, error %q", len(s.asked), k.reported)
	}
}
