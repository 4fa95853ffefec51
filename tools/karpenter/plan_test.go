// Package karpenter compares unnest plan with Karpenter's own simulation of scheduling and
// consolidation. It is a module of its own, because Karpenter needs another version of the
// libraries of Kubernetes than the product.
package karpenter

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/go-logr/logr"
	v1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/log"
)

// The programs of the product, which TestMain builds.
var unnest, generate string

func TestMain(m *testing.M) {
	flag.Parse()
	log.SetLogger(logr.Discard())
	dir, err := os.MkdirTemp("", "karpenter")
	if err != nil {
		panic(err)
	}
	// The flags are those of `make build`, whose results are in the compiler's cache.
	build := exec.Command("go", "build", "-C", "../..", "-trimpath", "-buildvcs=false", "-o", dir, "./cmd/unnest", "./hack/cluster")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "build unnest: %v\n%s", err, out)
		os.Exit(1)
	}
	unnest, generate = filepath.Join(dir, "unnest"), filepath.Join(dir, "cluster")
	code := m.Run()
	os.RemoveAll(dir)
	os.Exit(code)
}

// plan is what `unnest plan --json` prints of a cluster.
type plan struct {
	Cluster *struct {
		Now    float64 `json:"pay_now"`
		Packed float64 `json:"could_pay_packed"`
		Split  float64 `json:"could_pay_split"`
		Bound  float64 `json:"bound"`
		Pools  []pool  `json:"pools"`
		Steps  []struct {
			Action string `json:"action"`
			Moved  int    `json:"pods_moved"`
		} `json:"steps"`
	} `json:"cluster"`
	Settings struct {
		Catalogue []model `json:"catalogue"`
	} `json:"settings"`
}

type pool struct {
	Name   string            `json:"pool"`
	Zone   string            `json:"zone"`
	Labels map[string]string `json:"labels"`
	Taints []string          `json:"taints"`
	Nodes  map[string]int    `json:"nodes"`
	Pods   int               `json:"pods"`
	Now    float64           `json:"pay_now"`
	Packed float64           `json:"could_pay_packed"`
	Split  float64           `json:"could_pay_split"`
	Bound  float64           `json:"bound"`
	Stays  string            `json:"stays"`
}

// model is a model of VMs with what it leaves for pods.
type model struct {
	Name  string  `json:"name"`
	VCPU  float64 `json:"vcpu"`
	GiB   float64 `json:"memory_gib"`
	Price float64 `json:"price"` // $/h
	Pods  int     `json:"pods"`
}

// planned runs unnest plan on a dump. The time is that of the processors.
func planned(dump []byte) (p plan, cpu time.Duration, err error) {
	cmd := exec.Command(unnest, "plan", "--trace", "-", "--json")
	var stderr bytes.Buffer
	cmd.Stdin, cmd.Stderr = bytes.NewReader(dump), &stderr
	out, err := cmd.Output()
	if err != nil {
		return p, 0, fmt.Errorf("unnest plan: %w: %s", err, &stderr)
	}
	if err := json.Unmarshal(out, &p); err != nil {
		return p, 0, err
	}
	if p.Cluster == nil {
		return p, 0, errors.New("the plan has no cluster")
	}
	return p, cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime(), nil
}

// doNotDisrupt is the annotation of pods that Karpenter does not evict.
const doNotDisrupt = "karpenter.sh/do-not-disrupt"

// cluster is what a dump has of nodes and pods.
type cluster struct {
	nodes   []*v1.Node
	pods    []*v1.Pod
	volumes []*v1.PersistentVolume
}

// generated returns a random cluster, and the dump that unnest plan reads. Neither has disruption
// budgets and annotations against evictions: unnest plan's end does not depend on them, and
// Karpenter does nothing to nodes with them.
func generated(nodes, seed int, rules string) (c cluster, dump []byte, err error) {
	text, err := exec.Command(generate, fmt.Sprint(nodes), fmt.Sprint(seed), rules).Output()
	if err != nil {
		return c, nil, fmt.Errorf("generate a cluster: %w", err)
	}
	var list struct {
		Version string            `json:"apiVersion"`
		Kind    string            `json:"kind"`
		Items   []json.RawMessage `json:"items"`
	}
	if err := json.Unmarshal(text, &list); err != nil {
		return c, nil, err
	}
	kept := list.Items[:0]
	for _, raw := range list.Items {
		object, kind, err := scheme.Codecs.UniversalDeserializer().Decode(raw, nil, nil)
		if err != nil {
			return c, nil, err
		}
		switch object := object.(type) {
		case *v1.Node:
			c.nodes = append(c.nodes, object)
		case *v1.PersistentVolume:
			c.volumes = append(c.volumes, object)
		case *v1.Pod:
			c.pods = append(c.pods, object)
			if object.Annotations[doNotDisrupt] != "" {
				delete(object.Annotations, doNotDisrupt)
				if raw, err = json.Marshal(object); err != nil {
					return c, nil, err
				}
			}
		}
		if kind.Kind != "PodDisruptionBudget" {
			kept = append(kept, raw)
		}
	}
	list.Items = kept
	dump, err = json.Marshal(list)
	return c, dump, err
}

// in returns the nodes of a pool.
func (c cluster) in(p pool) map[string]*v1.Node {
	all := map[string]*v1.Node{}
	for _, n := range c.nodes {
		fits := n.Labels[v1.LabelTopologyZone] == p.Zone && len(n.Spec.Taints) == len(p.Taints)
		for _, t := range n.Spec.Taints {
			fits = fits && slices.Contains(p.Taints, t.Key+"="+t.Value+":"+string(t.Effect))
		}
		for key, value := range p.Labels {
			fits = fits && n.Labels[key] == value
		}
		if fits {
			all[n.Name] = n
		}
	}
	return all
}
