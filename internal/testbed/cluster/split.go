package cluster

import (
	"context"
	"os"
	"path/filepath"

	"unnest.io/unnest/deploy"
)

// The controller of split pods runs next to the API server, which reaches its webhook there. All nodes
// are guests of this host, so their label says one host.
const (
	splitName      = "unnest-kube"
	splitNamespace = "kube-system"
	splitUser      = "system:serviceaccount:" + splitNamespace + ":unnest-split"
	splitWebhook   = "https://127.0.0.1:9443/admit"
	splitReady     = "127.0.0.1:9481"
	hostLabel      = "unnest.node-restriction.kubernetes.io/host=" + LabName
)

func (c *Cluster) splitController(span string) component {
	return component{name: splitName, program: filepath.Join(filepath.Dir(c.options.Unnest), splitName), health: "http://" + splitReady + "/readyz", arguments: []string{
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
	if err := os.WriteFile(c.path("span"), []byte(c.options.SplitPods), 0o600); err != nil {
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
