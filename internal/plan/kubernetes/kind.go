package kubernetes

import (
	"encoding/json"
	"strings"
)

// ItemKind returns the kind of the items of a list that do not name theirs, as API servers send
// them; empty: unknown.
func ItemKind(list string, raw []byte) string {
	if kind := strings.TrimSuffix(list, "List"); kind != "" {
		return kind
	}
	var shape struct {
		Spec   struct{ Containers json.RawMessage }
		Status struct{ Allocatable, Capacity json.RawMessage }
	}
	if json.Unmarshal(raw, &shape) == nil && shape.Spec.Containers == nil && (shape.Status.Allocatable != nil || shape.Status.Capacity != nil) {
		return "Node"
	}
	return ""
}

// NodeOf returns the node of a pod that is not valid, empty if it names none.
func NodeOf(raw []byte) (name string) {
	var p struct {
		Spec struct{ NodeName json.RawMessage }
	}
	_ = json.Unmarshal(raw, &p) // other fields may be wrong
	_ = json.Unmarshal(p.Spec.NodeName, &name)
	return name
}
