package install

import (
	"fmt"
	"io"
	"strings"
	"time"

	"unnest.io/unnest/internal/hostapi/hostdpb"
)

// Names that Kubernetes' users see.
const (
	Resource      = "unnest.io/nic"
	ConditionType = "UnnestNetworkReady"
	PoliciesType  = "UnnestNetworkPoliciesEnforced"
	// HostLabel is splitpod.HostLabel.
	HostLabel = "unnest.node-restriction.kubernetes.io/host"
)

// health is what a check of the node has found.
type health struct {
	nics    NICs
	err     error // why pods cannot get NICs, or fractions not be connected; nil: they can
	chained bool  // another plugin gives pods their network

	encrypted bool // fractions need WireGuard
}

type condition struct {
	kind, status    string // status: True, False or Unknown
	reason, message string
}

// maxMessage bounds a condition's message, in bytes. An error may quote a program's output.
const maxMessage = 1024

// conditions say in words what the check has found.
func (h health) conditions(now time.Time) []condition {
	if h.chained {
		return []condition{h.network(now)}
	}
	return []condition{h.network(now), h.policies()}
}

// policies says whether the host enforces NetworkPolicies: the API server accepts them anyway.
func (h health) policies() condition {
	of := func(status, reason, message string) condition {
		return condition{PoliciesType, status, reason, message}
	}
	switch h.nics.Policies {
	case hostdpb.PolicyState_POLICY_STATE_ENFORCED:
		return of("True", "PolicyClientConnected", "NetworkPolicies apply to pods with a NIC of their own")
	case hostdpb.PolicyState_POLICY_STATE_NO_CLIENT:
		return of("False", "NoPolicyClient", "changes of NetworkPolicies do not take effect: no policy client is connected to the host daemon; start `unnest hostd policy run` on the host")
	case hostdpb.PolicyState_POLICY_STATE_NONE:
		return of("False", "NotConfigured", "NetworkPolicies are not enforced: set networkPolicy for the tenant in the host's hostd.yaml")
	}
	return of("Unknown", "HostDaemonSilent", "the host daemon does not say whether it enforces NetworkPolicies")
}

// network says whether pods can get NICs, or fractions of split pods can be connected.
func (h health) network(now time.Time) condition {
	c := condition{ConditionType, "True", "NICsAvailable", "pods can get NICs"}
	failed := condition{ConditionType, "False", "NICsUnavailable", "pods cannot get NICs: "}
	if h.chained {
		c.reason, c.message = "PluginChained", "tunnels can connect the fractions of split pods"
		failed.reason, failed.message = "PluginNotChained", "tunnels cannot connect the fractions of split pods: "
	}
	switch n := h.nics; {
	case h.err != nil:
		c = failed
		c.message += strings.ReplaceAll(h.err.Error(), "\n", "; ")
	case n.full():
		c.reason, c.message = "AllNICsInUse", fmt.Sprintf("pods have all %d NICs: %s", n.Attached, n.Limited)
	case n.Known:
		c.message = fmt.Sprintf("pods have %d NICs and can get %d more", n.Attached, n.Free)
	}
	if len(c.message) > maxMessage {
		c.message = strings.ToValidUTF8(c.message[:maxMessage], "")
	}
	if left := h.nics.Expires.Sub(now); !h.nics.Expires.IsZero() && left > 0 {
		c.message += fmt.Sprintf("; the node's credentials are valid for %d days", int(left/(24*time.Hour)))
	}
	return c
}

// capacity returns how many NICs the node has for pods that ask for one, if that is known.
// before is what it was; -1: unknown. A node whose daemon does not answer takes no more pods, but
// its capacity never falls below what its pods have: the kubelet would end some of them at its
// next start.
func (h health) capacity(before NICs, reserve int) (int, bool) {
	switch {
	case h.nics.Known:
		return max(0, h.nics.Attached+h.nics.Free-reserve), true
	case h.err != nil && before.Known:
		return min(before.Attached, max(0, before.Attached+before.Free-reserve)), true
	}
	return 0, false
}

// metrics writes what a check has found in the text format of Prometheus. It names no pods.
func (h health) metrics(w io.Writer) error {
	ready := 0
	if h.err == nil {
		ready = 1
	}
	text := "# HELP unnest_node_ready Whether pods of the node can get NICs, or have all of them. Without a host daemon: whether fractions can be connected.\n# TYPE unnest_node_ready gauge\n" +
		fmt.Sprintf("unnest_node_ready %d\n", ready)
	if h.nics.Known {
		text += "# HELP unnest_node_nics NICs of the node's pods.\n# TYPE unnest_node_nics gauge\n" +
			fmt.Sprintf("unnest_node_nics{state=\"attached\"} %d\nunnest_node_nics{state=\"free\"} %d\n", h.nics.Attached, h.nics.Free)
	}
	if !h.nics.Expires.IsZero() {
		text += "# HELP unnest_node_credentials_expire_seconds When the node's credentials expire, as Unix time.\n# TYPE unnest_node_credentials_expire_seconds gauge\n" +
			fmt.Sprintf("unnest_node_credentials_expire_seconds %d\n", h.nics.Expires.Unix())
	}
	_, err := io.WriteString(w, text)
	return err
}
