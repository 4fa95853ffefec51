package scheduler

// notYet names the examples and kinds of rules whose plans are known to be wrong. A test fails if
// one of them is right.
var notYet = map[string]bool{
	// Examples.
	"two Deployments with one host port":      true,
	"the host port of a DaemonSet":            true,
	"ports of pods in the node's network":     true,
	"11 replicas spread evenly over 10 nodes": true,
	"20 replicas, two on each node":           true,
	"two revisions spread on their own":       true,
	"anti-affinity to pods without a rule":    true,
	"anti-affinity in all namespaces":         true,
	"60 GiB of ephemeral storage":             true,
	"58 volumes on VMs that take 25":          true,
	"databases on disks of nodes":             true,
	"containers that share a directory":       true,
	// Kinds.
	"host ports":                        true,
	"the node's network":                true,
	"anti-affinity to other pods":       true,
	"anti-affinity in other namespaces": true,
	"affinity to other pods":            true,
	"spread over nodes":                 true,
	"spread over nodes by revision":     true,
	"spread over nodes with policies":   true,
	"ephemeral storage":                 true,
	"volumes":                           true,
	"volumes on disks of nodes":         true,
	"shared directories":                true,
}
