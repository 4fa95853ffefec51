package cluster

import (
	"context"
	"fmt"
	"net"
	"os"

	"unnest.io/unnest/internal/hostd/credentials"
	"unnest.io/unnest/internal/hostd/quota"
	"unnest.io/unnest/internal/testbed/fleet"
	"unnest.io/unnest/internal/testbed/lab"
)

// The policy client has the host daemon enforce the cluster's NetworkPolicies. It runs next to the
// API server, outside of the nodes.
const (
	policyName  = "network-policies"
	policyUser  = "unnest:policies"
	policyReady = "127.0.0.1:9480"
)

// daemonAddress is where the host daemon serves nodes and the policy client.
var daemonAddress = net.JoinHostPort(lab.ManagementGateway, fleet.DaemonPort)

func (c *Cluster) policyClient() component {
	return component{name: policyName, program: c.options.Unnest, health: "http://" + policyReady + "/healthz", arguments: []string{
		"hostd", "policy", "run", "--server", daemonAddress,
		"--credentials", c.path("policies"), "--kubeconfig", c.path("policies.conf"), "--http", policyReady,
	}}
}

// setPolicy has the host daemon take policies. Pods have all connections until the client has said which:
// a cluster whose client has ended goes on. Pods behind bridges are peers by their status. Those on the
// network of a node have its addresses, which the daemon knows.
func (c *Cluster) setPolicy() {
	tenant := &c.fleet.Policy.Tenants[0]
	tenant.NetworkPolicy = quota.PolicyOptional
	for _, f := range c.families() {
		tenant.PodRanges = append(tenant.PodRanges, f.bridged())
	}
}

// startPolicies starts the policy client, with rights of its own, and waits until the policies are
// in force.
func (c *Cluster) startPolicies(ctx context.Context) error {
	if err := c.writeKubeconfig("policies.conf", c.apiURL(), policyUser); err != nil {
		return err
	}
	if err := c.Apply(ctx, policyRights()...); err != nil {
		return err
	}
	return c.startPolicyClient(ctx)
}

// startPolicyClient starts the policy client with new credentials: somebody may have enrolled another one.
func (c *Cluster) startPolicyClient(ctx context.Context) error {
	if err := c.enrollPolicyClient(); err != nil {
		return err
	}
	return c.start(ctx, c.policyClient())
}

// enrollPolicyClient writes new credentials of the policy client, in place of those that are there.
func (c *Cluster) enrollPolicyClient() error {
	if err := os.RemoveAll(c.path("policies")); err != nil {
		return err
	}
	return credentials.EnrollPolicy(c.Lab.Dir, c.fleet.Policy, fleet.Tenant, c.path("policies"))
}

// Policies returns nil if the cluster's NetworkPolicies are in force, for pods with a NIC of their own.
// The host does not see what a pod behind the bridge of its node sends to others of that bridge.
func (c *Cluster) Policies(ctx context.Context) error {
	client, err := c.client()
	if err == nil {
		err = ask(ctx, client, c.policyClient().health)
	}
	if err != nil {
		return fmt.Errorf("enforce NetworkPolicies: %w%s", err, lastLine(c.path(policyName+".log")))
	}
	return nil
}

// policyRights let the policy client read what it needs and say which namespaces it refuses, and nothing else.
func policyRights() []map[string]any {
	return rights(policyUser, read("", "pods", "namespaces"), read("networking.k8s.io", "networkpolicies"),
		map[string]any{"apiGroups": []string{""}, "resources": []string{"events"}, "verbs": []string{"create"}})
}
