package pods

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"unnest.io/unnest/internal/measure/experiment"
)

// AllPairs asks for each node with itself, and each two nodes.
const AllPairs = "all"

// Pairs returns the pairs of nodes that are measured. asked is AllPairs, a list of CLIENT:SERVER with
// commas, or empty: the first of the nodes with itself, and with the second. nodes are names; none:
// the nodes that run pods of everybody.
func (c *Cluster) Pairs(ctx context.Context, nodes []string, asked string) ([]experiment.Pair, error) {
	if asked != "" && asked != AllPairs {
		return parsePairs(asked)
	}
	if len(nodes) == 0 {
		var list corev1.NodeList
		if err := c.nodes.list(ctx, "", metav1.ListOptions{}, &list); err != nil {
			return nil, allowed(err, "list nodes", "name two by --nodes NODE,NODE")
		}
		nodes = usable(list.Items)
	}
	return choosePairs(nodes, asked == AllPairs)
}

func parsePairs(list string) (pairs []experiment.Pair, _ error) {
	for text := range strings.SplitSeq(list, ",") {
		p, err := experiment.ParsePair(text)
		if err != nil {
			return nil, fmt.Errorf("--pairs: %w", err)
		}
		pairs = append(pairs, p)
	}
	return pairs, nil
}

// usable returns the names of the nodes that are ready and take pods without tolerations, sorted.
func usable(nodes []corev1.Node) (names []string) {
	for _, n := range nodes {
		ready := slices.ContainsFunc(n.Status.Conditions, func(c corev1.NodeCondition) bool {
			return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
		})
		tainted := slices.ContainsFunc(n.Spec.Taints, func(t corev1.Taint) bool { return t.Effect != corev1.TaintEffectPreferNoSchedule })
		if ready && !tainted && !n.Spec.Unschedulable {
			names = append(names, n.Name)
		}
	}
	slices.Sort(names)
	return names
}

func choosePairs(nodes []string, all bool) (pairs []experiment.Pair, _ error) {
	switch {
	case len(nodes) == 0:
		return nil, errors.New("choose nodes: none is ready and takes pods; name some by --nodes, which may have taints")
	case len(nodes) == 1:
		return nil, fmt.Errorf("choose nodes: there is no second node next to %[1]s; measure within it by --pairs %[1]s:%[1]s", nodes[0])
	case !all:
		return []experiment.Pair{{Client: nodes[0], Server: nodes[0]}, {Client: nodes[0], Server: nodes[1]}}, nil
	}
	for i, server := range nodes {
		for _, client := range nodes[:i+1] {
			pairs = append(pairs, experiment.Pair{Client: client, Server: server})
		}
	}
	return pairs, nil
}

// runtimeClass is that of pods with a NIC of their own.
const runtimeClass = "brfusion"

// HasBrFusion reports whether BrFusion is installed in the cluster. A user who may not know counts as
// one without.
func (c *Cluster) HasBrFusion(ctx context.Context) (bool, error) {
	err := c.runtimeClasses.get(ctx, "", runtimeClass, &nodev1.RuntimeClass{})
	switch {
	case apierrors.IsNotFound(err), apierrors.IsForbidden(err):
		return false, nil
	case err != nil:
		return false, fmt.Errorf("look for RuntimeClass %s: %w", runtimeClass, err)
	}
	return true, nil
}
