package cluster

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"unnest.io/unnest/deploy"
	"unnest.io/unnest/internal/testbed/fleet"
	"unnest.io/unnest/internal/testbed/lab"
	"unnest.io/unnest/internal/testbed/place"
)

// Kubectl runs kubectl as the administrator and returns its output.
func (c *Cluster) Kubectl(ctx context.Context, args ...string) (string, error) {
	return c.kubectl(ctx, nil, args...)
}

// Apply creates or changes objects.
func (c *Cluster) Apply(ctx context.Context, objects ...map[string]any) error {
	list := map[string]any{"apiVersion": "v1", "kind": "List", "items": objects}
	_, err := c.kubectl(ctx, asJSON(list), "apply", "--filename=-")
	return err
}

func (c *Cluster) kubectl(ctx context.Context, stdin []byte, args ...string) (string, error) {
	var out bytes.Buffer
	p, err := place.Local{}.Start(ctx, place.Command{
		Args:  append([]string{filepath.Join(c.path(programsLink), "kubectl"), "--kubeconfig=" + c.Kubeconfig()}, args...),
		Stdin: bytes.NewReader(stdin), Stdout: &out,
	})
	if err == nil {
		err = p.Wait()
	}
	if ctx.Err() != nil {
		err = errors.Join(err, context.Cause(ctx))
	}
	if err != nil {
		return out.String(), fmt.Errorf("kubectl %s: %w", args[0], err)
	}
	return out.String(), nil
}

// programsLink is a link to the directory of Kubernetes' programs, for later commands.
const programsLink = "programs"

// awaitNode waits until the node has registered and is ready.
func (c *Cluster) awaitNode(ctx context.Context, n *fleet.Node) error {
	limit := "--timeout=" + c.options.Wait.String()
	if _, err := c.Kubectl(ctx, "wait", "--for=create", "node/"+n.Name, limit); err != nil {
		return err
	}
	_, err := c.Kubectl(ctx, "wait", "--for=condition=Ready", "node/"+n.Name, limit)
	if label, ok := map[string]string{SpanHost: LabName, SpanNetwork: SpanNetwork}[c.options.SplitPods]; ok && err == nil {
		_, err = c.Kubectl(ctx, "label", "node", n.Name, hostLabel+label)
	}
	return err
}

// runtimeClasses let a pod choose its network.
func runtimeClasses() (all []map[string]any) {
	for _, name := range []string{BrFusion, Bridge} {
		all = append(all, map[string]any{
			"apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", "metadata": map[string]any{"name": name}, "handler": name,
		})
	}
	return all
}

// keepLogs saves the logs of a cluster that could not be made, and names them in the error.
func (c *Cluster) keepLogs(cause error) error {
	dir, err := os.MkdirTemp("", "unnest-cluster-logs-")
	if err == nil {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		err = c.SaveLogs(ctx, dir)
	}
	if err != nil {
		return errors.Join(cause, err)
	}
	return fmt.Errorf("%w; its logs are in %s", cause, dir)
}

var nodeLogs = []string{"kubelet.log", "kube-proxy.log", "containerd.log", "volumes.log"}

// SaveLogs copies the logs of all components into a directory. It leaves out those of nodes
// that do not answer.
func (c *Cluster) SaveLogs(ctx context.Context, dir string) (err error) {
	for _, pattern := range []string{"*.log", "kubernetes/*.log", "guests/*/*.log"} {
		found, globErr := filepath.Glob(filepath.Join(c.Lab.Dir, pattern))
		err = errors.Join(err, globErr)
		for _, path := range found {
			name, _ := filepath.Rel(c.Lab.Dir, path)
			content, readErr := os.ReadFile(path)
			err = errors.Join(err, readErr, write(filepath.Join(dir, name), content))
		}
	}
	names, listErr := c.Lab.Guests()
	for _, name := range names {
		for _, log := range nodeLogs {
			if content, readErr := c.OnNode(ctx, name, "cat", "/var/log/"+log); readErr == nil {
				err = errors.Join(err, write(filepath.Join(dir, "guests", name, log), content))
			}
		}
	}
	return errors.Join(err, listErr)
}

func write(path string, content []byte) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	return os.WriteFile(path, content, 0o600)
}

// OnNode runs a command on a node and returns its output.
func (c *Cluster) OnNode(ctx context.Context, name string, args ...string) ([]byte, error) {
	ssh, err := c.reach(ctx, name)
	if err != nil {
		return nil, err
	}
	defer ssh.Close()
	return place.Output(ctx, ssh, args...)
}

func (c *Cluster) reach(ctx context.Context, name string) (*place.SSH, error) {
	if c.fleet == nil {
		return nil, fmt.Errorf("reach node %s: the cluster has none", name)
	}
	n, err := c.fleet.Find(name)
	if err != nil {
		return nil, err
	}
	return c.fleet.Reach(ctx, n)
}

// Load gives every node the images of an archive (OCI, or as of `docker save`). open is called
// once for each node.
func (c *Cluster) Load(ctx context.Context, open func() (io.ReadCloser, error)) error {
	names, err := c.Lab.Guests()
	if err != nil {
		return err
	}
	return c.fleet.Load(ctx, names, "k8s.io", open)
}

// kubeconfig returns the configuration of a client of the API server at an URL.
func (k keys) kubeconfig(server string, p pair) []byte {
	named := func(kind string, v any) []any { return []any{map[string]any{"name": "unnest", kind: v}} }
	return asJSON(map[string]any{ // YAML has JSON as a part
		"apiVersion": "v1", "kind": "Config", "current-context": "unnest",
		"clusters": named("cluster", map[string]any{"server": server, "certificate-authority-data": k.caPEM()}),
		"users":    named("user", map[string]any{"client-certificate-data": p.cert, "client-key-data": p.key}),
		"contexts": named("context", map[string]any{"cluster": "unnest", "user": "unnest"}),
	})
}

func asJSON(v any) []byte {
	text, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		panic(fmt.Sprintf("marshal configuration: %v", err)) // plain data always marshals
	}
	return append(text, '\n')
}

func kubeconfigOf(l *lab.Lab) string { return filepath.Join(l.Dir, "kubernetes", "admin.conf") }

// Kubeconfig is the path of the administrator's configuration. It works on this machine.
func (c *Cluster) Kubeconfig() string { return kubeconfigOf(c.Lab) }

// writeKubeconfig writes the configuration of a user of the API into the cluster's directory.
func (c *Cluster) writeKubeconfig(file, server, user string, group ...string) error {
	p, err := c.keys.client(user, group...)
	if err != nil {
		return err
	}
	if err := os.WriteFile(c.path(file), c.keys.kubeconfig(server, p), 0o600); err != nil {
		return fmt.Errorf("write credentials of %s: %w", user, err)
	}
	return nil
}

// The controller of split pods runs next to the API server, which reaches its webhook there. All nodes
// are guests of this host, so their label says one host, or that tunnels connect them.
const (
	splitName      = "unnest-kube"
	splitNamespace = "kube-system"
	splitUser      = "system:serviceaccount:" + splitNamespace + ":unnest-split"
	splitWebhook   = "https://127.0.0.1:9443/admit"
	splitReady     = "127.0.0.1:9481"
	hostLabel      = "unnest.node-restriction.kubernetes.io/host="
)

func (c *Cluster) splitController(span string) component {
	return component{name: splitName, program: c.path(splitName), health: "http://" + splitReady + "/readyz", arguments: []string{
		"-kubeconfig", c.path("split.conf"), "-namespace", splitNamespace, "-host", "127.0.0.1", "-health", splitReady, "-span", span,
	}}
}

// readSpan returns the span of the cluster's split pods, which a file tells later commands.
func (c *Cluster) readSpan() string {
	content, _ := os.ReadFile(c.path("span"))
	return string(content)
}

// startSplitController starts the controller with the chart's rights, and waits until the API server
// trusts its webhook.
func (c *Cluster) startSplitController(ctx context.Context) error {
	objects, err := deploy.SplitPods(splitNamespace, splitWebhook)
	if err != nil {
		return err
	}
	if err := c.writeKubeconfig("split.conf", c.apiURL(), splitUser); err != nil {
		return err
	}
	if err := errors.Join(os.WriteFile(c.path("span"), []byte(c.options.SplitPods), 0o600), os.Symlink(c.options.Controller, c.path(splitName))); err != nil {
		return err
	}
	if _, err := c.kubectl(ctx, objects, "apply", "--filename=-"); err != nil {
		return err
	}
	return c.start(ctx, c.splitController(c.options.SplitPods))
}

// The spans of split pods: what connects their fractions.
const (
	SpanHost    = "host"
	SpanNetwork = "network"
)

// hostlo is the plugin that gives the fractions of a split pod one localhost, for the chain of a network.
func hostlo(span string) map[string]any {
	plugin := map[string]any{"type": "hostlo", "capabilities": map[string]bool{"io.kubernetes.cri.pod-annotations": true}}
	if span == SpanNetwork {
		plugin["span"] = span
	} else {
		plugin["server"], plugin["credentials"] = daemonAddress, "/etc/unnest"
	}
	return plugin
}
