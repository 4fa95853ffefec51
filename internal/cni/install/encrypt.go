package install

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"sync"
	"time"

	"unnest.io/unnest/internal/cni/loopback"
)

// KeyAnnotation of a node has the public key of its WireGuard device.
const KeyAnnotation = "unnest.io/wireguard-key"

// encryption keeps the WireGuard device of a node, and has its peers follow the keys of the other nodes.
type encryption struct {
	node     string
	log      *slog.Logger
	device   func(node string) (key string, err error)
	setPeers func(node string, all []loopback.Node) error

	mu    sync.Mutex
	key   string
	nodes []loopback.Node // nil: not known yet
	err   error           // why the device does not have its peers; nil: it has
	known chan struct{}   // closed when the nodes are known
	said  map[string]string
}

func newEncryption(node string, log *slog.Logger) *encryption {
	return &encryption{
		node: node, log: log, device: loopback.EnsureWireGuard, setPeers: loopback.SetWireGuardPeers,
		err: errors.New("the keys of other nodes are not known yet"), known: make(chan struct{}), said: map[string]string{},
	}
}

// ensure wraps what checks a node: it gets no fractions while nothing encrypts what these send. On a node with a host daemon that is no
// reason against NICs of pods.
func (e *encryption) ensure(check func(context.Context) (NICs, error), chained bool) func(context.Context) (NICs, error) {
	return func(ctx context.Context) (nics NICs, err error) {
		nics, err = check(ctx)
		var broken error
		if nics.Key, broken = e.update(nil); broken != nil {
			nics.Host = ""
		}
		if chained {
			return nics, errors.Join(err, broken)
		}
		e.tell("the node gets no fractions, because nothing encrypts what they send", broken)
		return nics, err
	}
}

// update makes the device, and gives it its peers if the nodes have changed, or the device has. nil: the nodes have not. It returns the
// key also if the peers are missing.
func (e *encryption) update(nodes []loopback.Node) (string, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if nodes != nil && e.nodes == nil {
		defer close(e.known)
	}
	if nodes != nil {
		e.nodes = nodes
	}
	key, err := e.device(e.node)
	if err != nil {
		e.err = err // so that a later call sets the peers
		return "", err
	}
	if e.nodes != nil && (nodes != nil || key != e.key || e.err != nil) {
		e.err = e.setPeers(e.node, e.nodes)
	}
	e.key = key
	return key, e.err
}

// follow sets the peers of the device at the beginning and after each change, until ctx ends.
func (e *encryption) follow(ctx context.Context, r *reporter) {
	for ctx.Err() == nil {
		err := r.follow(ctx, func(nodes []loopback.Node) { _, _ = e.update(nodes) }) // ensure tries again, and tells
		if ctx.Err() == nil {
			e.tell("the keys of other nodes are not followed; trying again", err)
		}
		select {
		case <-ctx.Done():
		case <-time.After(followPause + rand.N(followPause)): // not all nodes at once
		}
	}
}

// tell logs an error, unless it was the last one of its kind. nil: there is none any more.
func (e *encryption) tell(what string, err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	text := ""
	if err != nil {
		text = err.Error()
	}
	if e.said[what] != text {
		e.said[what] = text
		if err != nil {
			e.log.Error(what, "cause", err)
		}
	}
}

const (
	followPause = 5 * time.Second
	followFor   = 5 * time.Minute // at least; then all nodes are listed again
	followPage  = 100             // nodes of an answer, of which each takes some kilobytes
)

// object is a node as the API server has it, and what we read of a list.
type object struct {
	Metadata struct {
		Name, Continue, ResourceVersion string
		Annotations                     map[string]string
	}
	Status  json.RawMessage // of an error: its text
	Items   []object
	Message string
}

// node returns what package loopback wants to know.
func (o object) node() loopback.Node {
	n := loopback.Node{Name: o.Metadata.Name, Key: o.Metadata.Annotations[KeyAnnotation]}
	var status struct {
		Addresses []struct{ Type, Address string }
	}
	_ = json.Unmarshal(o.Status, &status) // without a status it has no addresses yet
	for _, a := range status.Addresses {
		if parsed, err := netip.ParseAddr(a.Address); err == nil && a.Type == "InternalIP" {
			n.Internal = append(n.Internal, parsed)
		}
	}
	return n
}

// follow calls set with all nodes of the cluster, and again after each change of one that matters to set. It returns nil after
// some minutes: then call it again.
func (r *reporter) follow(ctx context.Context, set func([]loopback.Node)) error {
	nodes, query := map[string]loopback.Node{}, url.Values{"limit": {fmt.Sprint(followPage)}}
	version := ""
	for more := true; more; {
		var page object
		if err := r.read(ctx, query, func(d *json.Decoder) error { return d.Decode(&page) }); err != nil {
			return err
		}
		for _, o := range page.Items {
			nodes[o.Metadata.Name] = o.node()
		}
		version, more = page.Metadata.ResourceVersion, page.Metadata.Continue != ""
		query.Set("continue", page.Metadata.Continue)
	}
	set(slices.Collect(maps.Values(nodes)))
	query = url.Values{"watch": {"true"}, "resourceVersion": {version}, "timeoutSeconds": {fmt.Sprint(int((followFor + rand.N(followFor)).Seconds()))}}
	return r.read(ctx, query, func(d *json.Decoder) error {
		for {
			var event struct {
				Type   string
				Object object
			}
			if err := d.Decode(&event); err != nil {
				return err
			}
			now := event.Object.node()
			was, known := nodes[now.Name]
			switch event.Type {
			case "ERROR": // the version is too old
				return fmt.Errorf("watch nodes: %s", event.Object.Message)
			case "DELETED":
				delete(nodes, now.Name)
			default:
				if nodes[now.Name] = now; known && was.Key == now.Key && slices.Equal(was.Internal, now.Internal) {
					continue
				}
			}
			set(slices.Collect(maps.Values(nodes)))
		}
	})
}

// read asks for nodes, and has f read the answer, whose end is no error.
func (r *reporter) read(ctx context.Context, query url.Values, f func(*json.Decoder) error) error {
	answer, err := r.open(ctx, 2*followFor+time.Minute, http.MethodGet, "/api/v1/nodes?"+query.Encode(), nil)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(io.LimitReader(answer.Body, 64<<10))
		return refused(answer.StatusCode, text)
	}
	if err := f(json.NewDecoder(answer.Body)); !errors.Is(err, io.EOF) {
		return err
	}
	return nil
}
