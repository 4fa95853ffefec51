package pods

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"path"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"unnest.io/unnest/internal/measure/experiment"
)

// api is an API server that keeps objects by their path. It runs no commands in pods.
type api struct {
	mu      sync.Mutex
	objects map[string]map[string]any
	made    []string       // paths of all objects that were ever there
	forbid  string         // resource that the user may not create
	status  map[string]any // of each pod
}

func newAPI(t *testing.T) (*api, *Cluster) {
	t.Helper()
	a := &api{objects: map[string]map[string]any{}, status: map[string]any{
		"phase": "Running", "podIP": "10.0.0.9", "containerStatuses": []any{map[string]any{"state": map[string]any{"running": map[string]any{}}}},
	}}
	server := httptest.NewServer(a)
	t.Cleanup(server.Close)
	config := &rest.Config{Host: server.URL, QPS: 1000, Burst: 1000}
	kinds, err := newKinds(config)
	if err != nil {
		t.Fatal(err)
	}
	return a, &Cluster{config, kinds, "v1.2.3"}
}

func (a *api) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	a.mu.Lock()
	defer a.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	answer := func(code int, o any) {
		w.WriteHeader(code)
		_ = json.NewEncoder(w).Encode(o)
	}
	refuse := func(code int, reason metav1.StatusReason) {
		answer(code, metav1.Status{TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: "Failure", Code: int32(code), Reason: reason, Message: fmt.Sprintf("%s: user cannot", reason)})
	}
	resource := path.Base(r.URL.Path)
	switch {
	case strings.HasSuffix(r.URL.Path, "/exec"):
		refuse(http.StatusForbidden, metav1.StatusReasonForbidden)
	case r.Method == http.MethodPost && resource == a.forbid:
		refuse(http.StatusForbidden, metav1.StatusReasonForbidden)
	case r.Method == http.MethodPost:
		var o map[string]any
		body, _ := io.ReadAll(r.Body)
		_ = json.Unmarshal(body, &o)
		meta := o["metadata"].(map[string]any)
		meta["uid"] = "u"
		if resource == "pods" {
			o["status"] = a.status
		}
		at := r.URL.Path + "/" + meta["name"].(string)
		a.objects[at], a.made = o, append(a.made, at)
		answer(http.StatusCreated, o)
	case r.Method == http.MethodGet && (resource == "pods" || resource == "namespaces" || resource == "events" || resource == "nodes"):
		items := []any{}
		for at, o := range a.objects {
			if path.Dir(at) == r.URL.Path {
				items = append(items, o)
			}
		}
		answer(http.StatusOK, map[string]any{"items": items})
	case a.objects[r.URL.Path] == nil:
		refuse(http.StatusNotFound, metav1.StatusReasonNotFound)
	case r.Method == http.MethodDelete:
		delete(a.objects, r.URL.Path)
		answer(http.StatusOK, metav1.Status{Status: "Success"})
	default:
		answer(http.StatusOK, a.objects[r.URL.Path])
	}
}

// count counts the objects of a resource that were ever there.
func (a *api) count(resource string) (n int) {
	for _, at := range a.made {
		if path.Base(path.Dir(at)) == resource {
			n++
		}
	}
	return n
}

type silent struct{}

func (silent) Phase(string)            {}
func (silent) Report(experiment.Event) {}

// An Up that fails removes everything that it has made, and says why it failed.
func TestUpFails(t *testing.T) {
	for name, tt := range map[string]struct {
		namespace string
		change    func(*api)
		want      string
		pods      int
	}{
		"no right to run commands":     {"", func(*api) {}, "start server in pod unnest-", 9},
		"no right to make pods":        {"given", func(a *api) { a.forbid = "pods" }, "Forbidden: user cannot; if the namespace forbids pods on the network of their node, give --leave-out node", 0},
		"no right to make a namespace": {"", func(a *api) { a.forbid = "namespaces" }, "name one in which you may create pods by --namespace", 0},
		"no right to make Services":    {"given", func(a *api) { a.forbid = "services" }, "ask for the right, or give --leave-out service", 9},
		"no image": {"", func(a *api) {
			a.status = map[string]any{"phase": "Pending", "containerStatuses": []any{map[string]any{"image": "i:1", "state": map[string]any{"waiting": map[string]any{"reason": "ImagePullBackOff"}}}}}
		}, "image i:1 cannot be pulled on n1", 9},
		"no room": {"", func(a *api) {
			a.status = map[string]any{"phase": "Pending", "conditions": []any{map[string]any{"type": "PodScheduled", "status": "False", "message": "0/2 nodes are available"}}}
		}, "not within 8s: it is not scheduled: 0/2 nodes are available", 9},
	} {
		t.Run(name, func(t *testing.T) {
			a, c := newAPI(t)
			tt.change(a)
			_, err := Up(t.Context(), c, spec(t), Options{Namespace: tt.namespace, Image: "i:1", Wait: 8 * time.Second, Progress: silent{}})
			if err == nil || !strings.Contains(err.Error(), tt.want) || strings.Contains(err.Error(), "remove what was made") {
				t.Errorf("got %v; want an error with %q", err, tt.want)
			}
			if len(a.objects) > 0 || a.count("pods") != tt.pods {
				t.Errorf("%d pods were made, want %d; left: %q", a.count("pods"), tt.pods, slices.Sorted(maps.Keys(a.objects)))
			}
		})
	}
}

// A user who may make no jobs measures all the same, and the run says what a kill leaves.
func TestNoJobs(t *testing.T) {
	a, c := newAPI(t)
	a.forbid = "jobs"
	b := &Set{cluster: c, spec: spec(t), plan: newPlan("unnest-x", "ns", "i:1", time.Hour, nil)}
	if err := b.takeLease(t.Context()); err != nil || b.plan.owner != nil || len(b.facts.Notes) != 1 || !strings.Contains(b.facts.Notes[0], "its pods end after 1h0m0s") {
		t.Errorf("got %v, owner %v, notes %q", err, b.plan.owner, b.facts.Notes)
	}
}

// Renew makes a pod that is gone again; what cannot be used has its reason.
func TestRenew(t *testing.T) {
	a, c := newAPI(t)
	s := spec(t)
	roles := rolesOf(s)
	b := &Set{
		cluster: c, spec: s, plan: newPlan("unnest-x", "ns", "i:1", time.Hour, roles), options: Options{Wait: time.Minute},
		addresses: map[string]string{}, servers: map[string]*server{}, broken: map[string]error{},
	}
	if err := b.makePods(t.Context(), roles); err != nil {
		t.Fatal(err)
	}
	name := b.plan.names[roles[0]]
	a.objects["/api/v1/namespaces/ns/pods/"+name]["status"] = map[string]any{"phase": "Failed", "reason": "Evicted", "message": "low on memory"}
	if err := b.explain(t.Context(), io.EOF, name); err == nil || !strings.Contains(err.Error(), "was evicted: low on memory; EOF") {
		t.Errorf("the reason is %v", err)
	}
	x := experiment.Schedule(s, 1)[0]
	x.Configuration = s.Configurations[0] // its client is the evicted pod
	if _, err := b.Execute(t.Context(), x); err == nil || !strings.Contains(err.Error(), "was evicted: low on memory") {
		t.Errorf("an execution with the evicted pod: %v", err)
	}
	if err := b.Renew(t.Context(), experiment.Execution{}); err != nil {
		t.Fatal(err)
	}
	if a.count("pods") != len(roles)+1 || b.broken[name] != nil {
		t.Errorf("%d pods were made, want one again: %v", a.count("pods"), b.broken[name])
	}
	server := b.plan.names[roles[1]]
	if err := b.broken[server]; err == nil || !strings.Contains(err.Error(), "start server in pod "+server) {
		t.Errorf("a server that does not start: %v", err)
	}
}
