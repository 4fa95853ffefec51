package install

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"time"
)

// serviceAccount is the directory with a pod's credentials for the API server.
const serviceAccount = "/var/run/secrets/kubernetes.io/serviceaccount"

// daemonSet is the name of the DaemonSet in the chart.
const daemonSet = "unnest-cni"

// heartbeat is the time after which an unchanged status is reported again.
const heartbeat = 5 * time.Minute

// reporter reports a node's status to the API server.
type reporter struct {
	node    string
	server  string // URL
	account string // directory
	reserve int    // NICs for pods that do not ask for one
	now     func() time.Time

	known    NICs // that the daemon counted last
	host     string
	labelled bool   // host is to be reported also if it is empty
	key      string // of WireGuard; "": unknown
	said     string
	saidAt   time.Time
	changed  map[string]transition // by type of condition
}

// transition is when a condition has got its status.
type transition struct {
	status string
	at     time.Time
}

// newReporter returns a reporter with the API server that the kubelet names to containers.
func newReporter(node string, reserve int) (*reporter, error) {
	host, port := os.Getenv("KUBERNETES_SERVICE_HOST"), os.Getenv("KUBERNETES_SERVICE_PORT")
	if host == "" || port == "" {
		return nil, errors.New("-node: KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT are not set: want a pod of Kubernetes")
	}
	return &reporter{node: node, server: "https://" + net.JoinHostPort(host, port), account: serviceAccount, reserve: reserve, now: time.Now, changed: map[string]transition{}}, nil
}

// report tells the API server what a check has found, unless it knows already.
func (r *reporter) report(ctx context.Context, h health) error {
	now := r.now()
	all := h.conditions(now)
	for _, c := range all {
		if r.changed[c.kind].status != c.status {
			r.changed[c.kind] = transition{c.status, now}
		}
	}
	capacity, known := h.capacity(r.known, r.reserve)
	if h.nics.Known {
		r.known = h.nics
	}
	if h.nics.Host != "" || h.chained || h.encrypted {
		r.host = h.nics.Host
	}
	r.labelled = r.labelled || h.chained || h.encrypted // then "" takes the label back
	r.key = cmp.Or(h.nics.Key, r.key)
	says := fmt.Sprint(all, capacity, known, r.host, r.key)
	if says == r.said && now.Sub(r.saidAt) < heartbeat {
		return nil
	}
	if err := r.patch(ctx, r.status(all, capacity, known, now)); err != nil {
		return fmt.Errorf("report status of node %s: %w", r.node, err)
	}
	r.said, r.saidAt = says, now
	return nil
}

// status is the part of the node's status that is ours.
func (r *reporter) status(all []condition, capacity int, known bool, now time.Time) map[string]any {
	var conditions []any
	for _, c := range all {
		conditions = append(conditions, map[string]any{
			"type": c.kind, "status": c.status, "reason": c.reason, "message": c.message,
			"lastHeartbeatTime": now.UTC().Format(time.RFC3339), "lastTransitionTime": r.changed[c.kind].at.UTC().Format(time.RFC3339),
		})
	}
	status := map[string]any{"conditions": conditions}
	if known {
		nics := map[string]string{Resource: strconv.Itoa(capacity)}
		// The kubelet takes over the capacity as allocatable, but some seconds later.
		status["capacity"], status["allocatable"] = nics, nics
	}
	return status
}

// patch merges status, the label of the host and the annotation of the key into the node's. A strategic merge leaves other conditions alone. The
// libraries of Kubernetes would make the plugin, which runs for each pod, twice as large.
func (r *reporter) patch(ctx context.Context, status map[string]any) error {
	object := map[string]any{"status": status}
	metadata := map[string]any{}
	if r.host != "" || r.labelled {
		metadata["labels"] = map[string]string{HostLabel: r.host}
	}
	if r.key != "" {
		metadata["annotations"] = map[string]string{KeyAnnotation: r.key}
	}
	if len(metadata) > 0 {
		object["metadata"] = metadata
	}
	body, err := json.Marshal(object)
	if err != nil {
		return err
	}
	code, text, err := r.ask(ctx, http.MethodPatch, "/api/v1/nodes/"+url.PathEscape(r.node)+"/status", body)
	if err != nil || code == http.StatusOK {
		return err
	}
	return refused(code, text)
}

// refused is the error of an answer.
func refused(code int, text []byte) error {
	var said struct{ Message string }
	_ = json.Unmarshal(text, &said) // the status line will do
	return fmt.Errorf("the API server answers %d %s: %s", code, http.StatusText(code), said.Message)
}

// deleted reports whether the DaemonSet of this pod is being deleted: the API server then knows it no more, nor the rights to ask, nor
// the pod's account. It does not know the account of a pod that was deleted by force either, whose DaemonSet may live.
func (r *reporter) deleted(ctx context.Context) bool {
	namespace, err := os.ReadFile(filepath.Join(r.account, "namespace"))
	if err != nil {
		return false
	}
	code, text, err := r.ask(ctx, http.MethodGet, "/apis/apps/v1/namespaces/"+url.PathEscape(string(namespace))+"/daemonsets/"+daemonSet, nil)
	var object struct {
		Metadata struct{ DeletionTimestamp string }
	}
	switch {
	case err != nil:
		return false
	case code == http.StatusOK:
		return json.Unmarshal(text, &object) == nil && object.Metadata.DeletionTimestamp != ""
	}
	return code == http.StatusNotFound || code == http.StatusForbidden || code == http.StatusUnauthorized
}

// ask asks the API server, and returns the status code of its answer with up to 64 KiB of the text.
func (r *reporter) ask(ctx context.Context, method, path string, body []byte) (code int, text []byte, err error) {
	answer, err := r.open(ctx, 10*time.Second, method, path, body)
	if err != nil {
		return 0, nil, err
	}
	defer answer.Body.Close()
	text, err = io.ReadAll(io.LimitReader(answer.Body, 64<<10))
	return answer.StatusCode, text, err
}

// open asks the API server. The limit is for the whole answer, whose body is the caller's to close.
func (r *reporter) open(ctx context.Context, limit time.Duration, method, path string, body []byte) (*http.Response, error) {
	client, token, err := r.client()
	if err != nil {
		return nil, err
	}
	client.Timeout = limit
	request, err := http.NewRequestWithContext(ctx, method, r.server+path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	if method == http.MethodPatch {
		request.Header.Set("Content-Type", "application/strategic-merge-patch+json")
	}
	request.Header.Set("Authorization", "Bearer "+token)
	return client.Do(request)
}

// client returns a client of the API server, and the token, which the kubelet replaces.
func (r *reporter) client() (*http.Client, string, error) {
	token, err := os.ReadFile(filepath.Join(r.account, "token"))
	if err != nil {
		return nil, "", fmt.Errorf("read token: %w", err)
	}
	ca, err := os.ReadFile(filepath.Join(r.account, "ca.crt"))
	if err != nil {
		return nil, "", fmt.Errorf("read certificate of the API server: %w", err)
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(ca) {
		return nil, "", fmt.Errorf("read certificate of the API server: %s/ca.crt has none", r.account)
	}
	tls := &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: roots}
	return &http.Client{Transport: &http.Transport{TLSClientConfig: tls, DisableKeepAlives: true}}, string(bytes.TrimSpace(token)), nil
}
