package trace

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"unnest/internal/plan/cluster"
)

// rulesKubectl has the fields of a pod's spec that restrict where it may run.
type rulesKubectl struct {
	NodeSelector map[string]string `json:"nodeSelector"`
	Affinity     struct {
		Node struct {
			Required struct {
				Terms []struct {
					Expressions []expressionKubectl `json:"matchExpressions"`
					Fields      []expressionKubectl `json:"matchFields"`
				} `json:"nodeSelectorTerms"`
			} `json:"requiredDuringSchedulingIgnoredDuringExecution"`
			Preferred []json.RawMessage `json:"preferredDuringSchedulingIgnoredDuringExecution"`
		} `json:"nodeAffinity"`
		Pod  podAffinityKubectl `json:"podAffinity"`
		Anti podAffinityKubectl `json:"podAntiAffinity"`
	} `json:"affinity"`
	Tolerations []struct {
		Key string `json:"key"`
	} `json:"tolerations"`
	Spread []struct {
		MaxSkew  int             `json:"maxSkew"`
		Topology string          `json:"topologyKey"`
		When     string          `json:"whenUnsatisfiable"`
		Selector selectorKubectl `json:"labelSelector"`
	} `json:"topologySpreadConstraints"`
	Priority int64 `json:"priority"`
	Volumes  []struct {
		Claim *struct{} `json:"persistentVolumeClaim"`
	} `json:"volumes"`
}

type podAffinityKubectl struct {
	Required []struct {
		Topology string          `json:"topologyKey"`
		Selector selectorKubectl `json:"labelSelector"`
	} `json:"requiredDuringSchedulingIgnoredDuringExecution"`
	Preferred []json.RawMessage `json:"preferredDuringSchedulingIgnoredDuringExecution"`
}

type selectorKubectl struct {
	Labels      map[string]string   `json:"matchLabels"`
	Expressions []expressionKubectl `json:"matchExpressions"`
}

type expressionKubectl struct {
	Key      string   `json:"key"`
	Operator string   `json:"operator"`
	Values   []string `json:"values"`
}

// matches reports whether labels satisfy the selector. An empty one matches all.
func (s selectorKubectl) matches(labels map[string]string) bool {
	for key, value := range s.Labels {
		if has, ok := labels[key]; !ok || has != value {
			return false
		}
	}
	for _, e := range s.Expressions {
		has, ok := labels[e.Key]
		in := ok && slices.Contains(e.Values, has)
		switch e.Operator {
		case "In", "NotIn":
			ok = in == (e.Operator == "In")
		case "DoesNotExist":
			ok = !ok
		}
		if !ok {
			return false
		}
	}
	return true
}

// Labels of nodes that name where they are.
const (
	hostnameLabel = "kubernetes.io/hostname"
	zoneLabel     = "topology.kubernetes.io/zone"
)

// rules collects what restricts the places of pods, over all pods.
type rules struct {
	counts    map[cluster.Rule]int
	selectors map[string]bool // labels of nodes
	apart     map[string]int32
}

// notSafe are annotations with which pods refuse to be moved by autoscalers.
var notSafe = map[string]string{"karpenter.sh/do-not-disrupt": "true", "karpenter.sh/do-not-evict": "true", "cluster-autoscaler.kubernetes.io/safe-to-evict": "false"}

// add counts the rules of a pod, and marks it for those that are about its VM. The planner
// keeps pods in a pool of equal nodes: rules about nodes and zones then hold as they do today.
func (r *rules) add(p *podKubectl, pod *cluster.Pod) {
	if r.counts == nil {
		r.counts, r.selectors, r.apart = map[cluster.Rule]int{}, map[string]bool{}, map[string]int32{}
	}
	s := &p.Spec.rulesKubectl
	counted := map[cluster.Rule]bool{}
	count := func(what string, how cluster.Honoured) { counted[cluster.Rule{What: what, How: how}] = true }
	for key := range s.NodeSelector {
		r.selectors[key] = true
		count("nodeSelector", cluster.ByPool)
	}
	pinned := s.NodeSelector[hostnameLabel] != ""
	for _, term := range s.Affinity.Node.Required.Terms {
		for _, e := range term.Expressions {
			r.selectors[e.Key] = true
			pinned = pinned || e.Key == hostnameLabel
		}
		pinned = pinned || len(term.Fields) > 0
		count("node affinity", cluster.ByPool)
	}
	if pinned {
		pod.Origin.Pinned = true
	}
	for _, tolerated := range s.Tolerations {
		if !strings.HasPrefix(tolerated.Key, "node.kubernetes.io/") {
			count("tolerations of taints", cluster.ByPool)
		}
	}
	for _, v := range s.Volumes {
		if v.Claim != nil {
			count("persistent volumes, which may be of one zone", cluster.ByPool)
		}
	}
	for _, term := range s.Affinity.Anti.Required {
		switch {
		case term.Topology != hostnameLabel:
			count("pod anti-affinity by zone", cluster.ByPool)
		case term.Selector.matches(p.Metadata.Labels) && r.separate(p, pod, term.Selector):
			count("pod anti-affinity by node", cluster.ByVM)
		default:
			count("pod anti-affinity by node, to other pods", cluster.Not)
		}
	}
	for _, term := range s.Affinity.Pod.Required {
		if term.Topology == hostnameLabel {
			count("pod affinity by node", cluster.Not)
		} else {
			count("pod affinity by zone", cluster.ByPool)
		}
	}
	for _, spread := range s.Spread {
		switch {
		case spread.When == "ScheduleAnyway":
			count("preferences", cluster.Not)
		case spread.Topology != hostnameLabel:
			count("topology spread by zone", cluster.ByPool)
		case spread.MaxSkew == 1 && spread.Selector.matches(p.Metadata.Labels) && r.separate(p, pod, spread.Selector):
			count("topology spread by node", cluster.ByVM)
		default:
			count("topology spread by node, with a skew above 1", cluster.Not)
		}
	}
	if len(s.Affinity.Node.Preferred)+len(s.Affinity.Pod.Preferred)+len(s.Affinity.Anti.Preferred) > 0 {
		count("preferences", cluster.Not)
	}
	if s.Priority != 0 {
		count("priority: all pods are placed, so none preempts another", cluster.Moot)
	}
	for key, value := range notSafe {
		if p.Metadata.Notes[key] == value {
			count("annotation "+key+": move them by hand", cluster.Later)
		}
	}
	for rule := range counted {
		r.counts[rule]++
	}
}

// separate puts the pod among those that the selector keeps apart. A pod can be among one such
// set.
func (r *rules) separate(p *podKubectl, pod *cluster.Pod, s selectorKubectl) bool {
	text, _ := json.Marshal(s) // of strings never fails; sorts maps
	key := p.Metadata.Namespace + " " + string(text)
	if r.apart[key] == 0 {
		r.apart[key] = int32(len(r.apart) + 1)
	}
	if pod.Apart == 0 {
		pod.Apart = r.apart[key]
	}
	return pod.Apart == r.apart[key]
}

// budget reads a PodDisruptionBudget.
func (t *kubectlDump) budget(raw []byte) error {
	var b struct {
		Status struct {
			Allowed  int `json:"disruptionsAllowed"`
			Expected int `json:"expectedPods"`
		} `json:"status"`
	}
	if err := json.Unmarshal(raw, &b); err != nil {
		return t.broken(err)
	}
	t.rep.add(request{why: Budget})
	if t.rules.counts == nil {
		t.rules.counts = map[cluster.Rule]int{}
	}
	how := "disruption budgets: move as many pods at a time as they allow"
	if b.Status.Allowed == 0 {
		how = "disruption budgets that allow none today: make room for a replica first"
	}
	t.rules.counts[cluster.Rule{What: how, How: cluster.Later}] += b.Status.Expected
	return nil
}

// list returns the rules with their numbers of pods.
func (r *rules) list() []cluster.Rule {
	var all []cluster.Rule
	for rule, pods := range r.counts {
		rule.Pods = pods
		all = append(all, rule)
	}
	slices.SortFunc(all, func(a, b cluster.Rule) int {
		return strings.Compare(fmt.Sprint(a.How, a.What), fmt.Sprint(b.How, b.What))
	})
	return all
}

// keys returns the labels of nodes that pods select by, sorted.
func (r *rules) keys() []string { return slices.Sorted(maps.Keys(r.selectors)) }
