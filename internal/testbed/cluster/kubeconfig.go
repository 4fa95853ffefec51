package cluster

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"

	"unnest.io/unnest/internal/testbed/lab"
)

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
