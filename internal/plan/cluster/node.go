package cluster

// Node is a VM of a cluster today.
type Node struct {
	Name     string
	Model    string // of the VM; empty: unknown
	Provider string // ID of the provider, such as aws:///us-east-1a/i-0
	Labels   map[string]string
	Taints   []string // KEY=VALUE:EFFECT, of those that keep pods away
	Capacity Resources
	// Allocatable is what pods, including those of DaemonSets, may request.
	Allocatable Resources
	Pods        int   // most pods
	Storage     int64 // ephemeral, in bytes; 0: unknown
	Volumes     int64 // most that can be attached; 0: unknown
}

// DaemonSet runs a pod on some nodes.
type DaemonSet struct {
	Name    string    // NAMESPACE/NAME
	Request Resources // the largest of its pods
	Nodes   map[string]bool
	Rules   *Rules // of its pods
}

// Rule is a kind of rule about the places of pods, and how many pods have it.
type Rule struct {
	What string
	How  Honoured
	Pods int
}

// Honoured says how plans treat a rule.
type Honoured string

// The ways.
const (
	ByVM     Honoured = "on each VM"
	Stricter Honoured = "on each VM, more strictly"
	ByPool   Honoured = "each pod stays in its pool"
	Stays    Honoured = "its node stays"
	Ignored  Honoured = "left out"
	Moot     Honoured = "decides nothing"
	Later    Honoured = "when pods move"
	Not      Honoured = "NOT HONOURED"
)
