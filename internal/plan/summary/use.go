package summary

// Use is requests that follow from what containers use, and what they save.
type Use struct {
	Sources    []string  `json:"sources"` // FORMAT:PATH
	Headroom   int       `json:"headroom_percent"`
	Percentile float64   `json:"percentile_of_cpu"`
	Samples    int       `json:"fewest_samples"` // of a container; 0: all use is recommended
	Containers int       `json:"containers"`
	Known      int       `json:"containers_with_use"`
	Lowered    int       `json:"containers_lowered"`
	Raised     int       `json:"containers_raised"` // they use more than they request
	Fixed      int       `json:"pods_with_requests_as_a_whole,omitempty"`
	Unmatched  int       `json:"use_without_container,omitempty"`
	Kept       int       `json:"users_not_right_sized,omitempty"` // a pod of theirs would be too large
	Requested  Amount    `json:"requested"`
	Sized      Amount    `json:"right_sized"`
	Changes    []Request `json:"changes"`
	Saves      []Share   `json:"saves"` // each after those before it, so they add up
}

// Amount is resources.
type Amount struct {
	VCPU float64 `json:"vcpu"`
	GiB  float64 `json:"memory_gib"`
}

// Request is other requests for a container of all pods of a workload.
type Request struct {
	Namespace string `json:"namespace"`
	Kind      string `json:"kind"` // Pod: one that no workload makes
	Workload  string `json:"name"`
	Container string `json:"container"`
	Sidecar   bool   `json:"sidecar,omitempty"` // an init container that keeps running
	Pods      int    `json:"pods"`
	From      Amount `json:"from"`
	To        Amount `json:"to"`
}

// Share is what one measure saves after those before it; below 0 it costs more.
type Share struct {
	Measure string  `json:"measure"`
	Saves   Dollars `json:"saves"`
}

// SizedCosts are the costs of plans of a user with requests by use.
type SizedCosts struct {
	Whole Dollars `json:"whole"`
	Best  Dollars `json:"best"`
	Bound Dollars `json:"bound"`
}

// The measures, in their order.
const (
	MeasurePacking   = "packing whole pods"
	MeasureSizing    = "right-sizing requests"
	MeasureSplitting = "splitting pods"
)

// TakeUse adds what right-sizing saves: for a cluster with nodes against what they cost, else
// against kubernetes. The savings add up, because each counts after those before it.
func (c *Plan) TakeUse(u Use) {
	now, packed, sized, split := c.Cost.Kubernetes, c.Cost.Whole, Dollars(0), Dollars(0)
	for _, user := range c.PerUser {
		if user.Sized != nil {
			sized, split = sized+user.Sized.Whole, split+user.Sized.Best
		}
	}
	if t := c.Today; t != nil {
		now, packed = t.Now, t.Packed
		sized, split, _, _ = t.Could()
	}
	u.Saves = []Share{{MeasurePacking, now - packed}, {MeasureSizing, packed - sized}, {MeasureSplitting, sized - split}}
	c.Use = &u
}
