package kubernetes

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// A spread that honours taints is over the nodes whose taints the pod tolerates.
func TestNodesOfASpreadThatHonoursTaints(t *testing.T) {
	taint := corev1.Taint{Key: "tier", Value: "5", Effect: corev1.TaintEffectNoSchedule}
	for _, c := range []struct {
		toleration corev1.Toleration
		want       bool
	}{
		{corev1.Toleration{}, false},
		{corev1.Toleration{Operator: corev1.TolerationOpExists}, true},
		{corev1.Toleration{Key: "tier", Value: "5"}, true},
		{corev1.Toleration{Key: "tier", Value: "4"}, false},
		{corev1.Toleration{Key: "tier", Value: "5", Effect: corev1.TaintEffectNoExecute}, false},
		{corev1.Toleration{Key: "tier", Operator: corev1.TolerationOpGt, Value: "4"}, true},
		{corev1.Toleration{Key: "tier", Operator: corev1.TolerationOpGt, Value: "5"}, false},
		{corev1.Toleration{Key: "tier", Operator: corev1.TolerationOpLt, Value: "5"}, false},
	} {
		n := &corev1.Node{Spec: corev1.NodeSpec{Taints: []corev1.Taint{taint, {Key: "soft", Effect: corev1.TaintEffectPreferNoSchedule}}}}
		n.Labels = map[string]string{corev1.LabelHostname: "n0"}
		spec := corev1.PodSpec{Tolerations: []corev1.Toleration{c.toleration}}
		n.Spec.Taints = append(n.Spec.Taints, corev1.Taint{Key: "ToBeDeletedByClusterAutoscaler", Effect: corev1.TaintEffectNoSchedule}) // it passes
		if got := eligible(&spec, true)(n); got != c.want {
			t.Errorf("%+v: %v, want %v", c.toleration, got, c.want)
		}
		if !eligible(&spec, false)(n) {
			t.Errorf("%+v: a spread that ignores taints is not over the node", c.toleration)
		}
	}
}
