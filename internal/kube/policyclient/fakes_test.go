package policyclient

import (
	"encoding/json"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	grpcstatus "google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"unnest.io/unnest/internal/hostapi/hostdpb"
)

// apiServer serves lists and watches of objects, as JSON.
type apiServer struct {
	url string

	mu      sync.Mutex
	objects map[string]map[string]any // by resource and name
	watches map[string][]chan event
	created chan string // events, as REASON NAMESPACE
}

type event struct {
	Type   string `json:"type"`
	Object any    `json:"object"`
}

func newAPIServer(t *testing.T) *apiServer {
	s := &apiServer{objects: map[string]map[string]any{"pods": {}, "namespaces": {}, "networkpolicies": {}}, watches: map[string][]chan event{}, created: make(chan string, 100)}
	served := httptest.NewServer(s)
	t.Cleanup(served.Close)
	t.Cleanup(served.CloseClientConnections)
	s.url = served.URL
	return s
}

func (s *apiServer) config() *rest.Config { return &rest.Config{Host: s.url} }

// ServeHTTP implements http.Handler.
func (s *apiServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	resource := r.URL.Path[strings.LastIndex(r.URL.Path, "/")+1:]
	w.Header().Set("Content-Type", "application/json")
	switch query := r.URL.Query(); {
	case r.Method == http.MethodPost:
		var e corev1.Event
		_ = json.NewDecoder(r.Body).Decode(&e)
		s.created <- e.Reason + " " + e.InvolvedObject.Name
		w.WriteHeader(http.StatusCreated)
		_ = json.NewEncoder(w).Encode(e)
	case query.Get("sendInitialEvents") != "": // the client lists then
		w.WriteHeader(http.StatusUnprocessableEntity)
		_ = json.NewEncoder(w).Encode(metav1.Status{Status: metav1.StatusFailure, Reason: metav1.StatusReasonInvalid, Code: http.StatusUnprocessableEntity})
	case query.Get("watch") != "":
		s.watch(w, r, resource)
	default:
		s.list(w, resource)
	}
}

func (s *apiServer) list(w http.ResponseWriter, resource string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	items := []any{}
	for _, o := range s.objects[resource] {
		items = append(items, o)
	}
	kind, version := map[string]string{"pods": "PodList", "namespaces": "NamespaceList", "networkpolicies": "NetworkPolicyList"}[resource], "v1"
	if resource == "networkpolicies" {
		version = "networking.k8s.io/v1"
	}
	_ = json.NewEncoder(w).Encode(map[string]any{"kind": kind, "apiVersion": version, "metadata": map[string]string{"resourceVersion": "1"}, "items": items})
}

func (s *apiServer) watch(w http.ResponseWriter, r *http.Request, resource string) {
	s.mu.Lock()
	events := make(chan event, 100+len(s.objects[resource]))
	for _, o := range s.objects[resource] { // what changed since the list
		events <- event{"MODIFIED", o}
	}
	s.watches[resource] = append(s.watches[resource], events)
	s.mu.Unlock()
	w.(http.Flusher).Flush()
	for {
		select {
		case <-r.Context().Done():
			return
		case e := <-events:
			_ = json.NewEncoder(w).Encode(e)
			w.(http.Flusher).Flush()
		}
	}
}

// set adds or changes objects.
func (s *apiServer) set(objects ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, o := range objects {
		resource, name := prepare(o)
		s.objects[resource][name] = o
		for _, w := range s.watches[resource] {
			w <- event{"MODIFIED", o}
		}
	}
}

func (s *apiServer) remove(o any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	resource, name := prepare(o)
	delete(s.objects[resource], name)
	for _, w := range s.watches[resource] {
		w <- event{"DELETED", o}
	}
}

// prepare completes an object's type, and returns its resource and name.
func prepare(o any) (resource, name string) {
	switch o := o.(type) {
	case *corev1.Pod:
		o.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}
		return "pods", o.Namespace + "/" + o.Name
	case *corev1.Namespace:
		o.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Namespace"}
		return "namespaces", o.Name
	}
	p := o.(*networkingv1.NetworkPolicy)
	p.TypeMeta = metav1.TypeMeta{APIVersion: "networking.k8s.io/v1", Kind: "NetworkPolicy"}
	return "networkpolicies", p.Namespace + "/" + p.Name
}

// hostDaemon takes policies and passes commits on.
type hostDaemon struct {
	hostdpb.UnimplementedHostPolicyServer
	commits   chan commit
	ended     chan []string // to tell the client
	owned     chan *hostdpb.Ownership
	fail      chan struct{} // ends the stream
	refused   []string      // namespaces
	answer    chan struct{} // has a value, or is closed, when a commit may be answered. nil: at once
	forgotten sync.Map      // names of pods that the client was told to send again
}

// commit is the requests of one commit.
type commit struct {
	pods    map[string]*hostdpb.PodPolicy
	removed []string
	first   bool // of its stream
	both    bool // the daemon had what ends and what begins at once, for which there may be no room
}

func newHostDaemon(t *testing.T) (*hostDaemon, hostdpb.HostPolicyClient) {
	t.Helper()
	d := &hostDaemon{commits: make(chan commit, 100), ended: make(chan []string), owned: make(chan *hostdpb.Ownership), fail: make(chan struct{})}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer()
	hostdpb.RegisterHostPolicyServer(server, d)
	go func() { _ = server.Serve(l) }()
	t.Cleanup(server.Stop)
	conn, err := grpc.NewClient("passthrough:///"+l.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return d, hostdpb.NewHostPolicyClient(conn)
}

// Apply implements hostdpb.HostPolicyServer.
func (d *hostDaemon) Apply(stream hostdpb.HostPolicy_ApplyServer) error {
	anywhere := []string{"0.0.0.0/0", "::/0"}
	if err := stream.Send(&hostdpb.ApplyResponse{Ownership: &hostdpb.Ownership{Ranges: &hostdpb.AddressRanges{Pods: anywhere, Nodes: anywhere}}}); err != nil {
		return err
	}
	ended := make(chan error, 1)
	var sending sync.Mutex
	go func() { ended <- d.receive(stream, &sending) }()
	for {
		select {
		case err := <-ended:
			return err
		case <-d.fail:
			return grpcstatus.Error(codes.Unavailable, "stopping")
		case o := <-d.owned:
			sending.Lock()
			err := stream.Send(&hostdpb.ApplyResponse{Ownership: o})
			sending.Unlock()
			if err != nil {
				return err
			}
		case pods := <-d.ended:
			for _, name := range pods {
				d.forgotten.Store(name, true)
			}
			sending.Lock()
			err := stream.Send(&hostdpb.ApplyResponse{Ended: pods})
			sending.Unlock()
			if err != nil {
				return err
			}
		}
	}
}

func (d *hostDaemon) receive(stream hostdpb.HostPolicy_ApplyServer, sending *sync.Mutex) error {
	next := commit{pods: map[string]*hostdpb.PodPolicy{}, first: true}
	has := map[string]bool{}
	for {
		r, err := stream.Recv()
		if err != nil {
			return err
		}
		if p := r.GetPod(); p != nil {
			_, forgotten := d.forgotten.LoadAndDelete(p.GetPod())
			next.both = next.both || has[p.GetPod()] && !forgotten
			next.pods[p.GetPod()], has[p.GetPod()] = p, true
			next.removed = slices.DeleteFunc(next.removed, func(name string) bool { return name == p.GetPod() })
		}
		if r.GetRemove() != "" {
			next.both = next.both || len(next.pods) > 0
			delete(has, r.GetRemove())
			next.removed = append(next.removed, r.GetRemove())
		}
		if r.GetCommit() {
			d.commits <- next
			if d.answer != nil {
				<-d.answer
			}
			sending.Lock()
			err := stream.Send(&hostdpb.ApplyResponse{Pods: uint32(len(next.pods)), Refused: d.refused})
			sending.Unlock()
			if err != nil {
				return err
			}
			next = commit{pods: map[string]*hostdpb.PodPolicy{}}
		}
	}
}
