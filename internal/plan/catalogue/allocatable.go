package catalogue

import (
	"cmp"
	"fmt"

	"unnest.io/unnest/internal/plan/cluster"
)

// Reservation is a formula for kube-reserved and the eviction threshold of a node.
type Reservation string

// The formulas.
const (
	ReserveNothing Reservation = ""    // the paper: pods get the whole VM
	ReserveGKE     Reservation = "gke" // memory by size of the VM
	ReserveEKS     Reservation = "eks" // memory by number of pods: 255 MiB + 11 MiB for each
	ReserveAKS     Reservation = "aks" // memory by number of pods: 50 MB + 20 MB for each
)

// Reserve is the resources of every VM that are not for pods.
type Reserve struct {
	Kube       Reservation
	System     cluster.Resources // system-reserved
	DaemonSets cluster.Resources // requests of the pods that run on every node
	DaemonPods int               // their number, counted against Model.Pods
}

const mebibyte = 1 << 20

// eviction is the memory below which both GKE and EKS evict pods.
const eviction = 100 * mebibyte

// eksPods is the number that EKS and AKS assume for a model without a limit of pods.
const eksPods = 110

const megabyte = 1_000_000

// Allocatable returns the catalogue with the sizes left for pods. It omits models with nothing
// left; if none remains, that is an error.
//
// CPU, GKE and EKS: 6 % of the first core, 1 % of the second, 0.5 % of the third and fourth,
// 0.25 % of all others. Memory, GKE: 255 MiB below 1 GiB, else 25 % of the first 4 GiB, 20 % of
// the next 4, 10 % of the next 8, 6 % of the next 112, 2 % of the rest
// (cloud.google.com/kubernetes-engine/docs/concepts/plan-node-sizes). Memory, EKS: 255 MiB + 11
// MiB for each pod (awslabs/amazon-eks-ami, nodeadm/internal/kubelet). AKS from 1.29 on
// (learn.microsoft.com/azure/aks/node-resource-reservations): 60 thousandths of a vCPU of the
// first core, 40 of the second, 20 of the third and fourth, 10 of all others; 50 MB and 20 MB for
// each pod, at most 25 % of the memory. All: an eviction threshold of 100 MiB.
func Allocatable(c cluster.Catalogue, r Reserve) (cluster.Catalogue, error) {
	var left cluster.Catalogue
	for _, m := range c {
		kube, err := kubeReserved(m, r.Kube)
		if err != nil {
			return nil, err
		}
		m.Nominal = m.Taken()
		m.Size = m.Size.Sub(kube).Sub(r.System).Sub(r.DaemonSets)
		limited := m.Pods > 0
		m.Pods -= r.DaemonPods
		if m.Size.CPU <= 0 || m.Size.Memory <= 0 || limited && m.Pods < 1 {
			continue
		}
		m.Pods = max(0, m.Pods)
		left = append(left, m)
	}
	if len(left) == 0 {
		return nil, fmt.Errorf("none of %d models has anything left for pods: reserve less, or use larger models", len(c))
	}
	return left, nil
}

func kubeReserved(m cluster.Model, r Reservation) (cluster.Resources, error) {
	switch r {
	case ReserveNothing:
		return cluster.Resources{}, nil
	case ReserveGKE:
		return cluster.Resources{CPU: reservedCPU(m.Size.CPU), Memory: gkeMemory(m.Size.Memory) + eviction}, nil
	case ReserveEKS:
		pods := int64(cmp.Or(m.Pods, eksPods))
		return cluster.Resources{CPU: reservedCPU(m.Size.CPU), Memory: (255+11*pods)*mebibyte + eviction}, nil
	case ReserveAKS:
		pods := int64(cmp.Or(m.Pods, eksPods))
		cpu := bracketed(m.Size.CPU, []bracket{{cluster.VCPU, 600}, {2 * cluster.VCPU, 400}, {4 * cluster.VCPU, 200}, {1 << 62, 100}})
		return cluster.Resources{CPU: cpu, Memory: min((50+20*pods)*megabyte, m.Size.Memory/4) + eviction}, nil
	}
	return cluster.Resources{}, fmt.Errorf("reservation %q is unknown: want %s, %s, %s or nothing", r, ReserveGKE, ReserveEKS, ReserveAKS)
}

// bracket is a rate, in units of 1/10,000, for the part below an upper end.
type bracket struct{ upTo, rate int64 }

func bracketed(total int64, brackets []bracket) int64 {
	var sum, from int64
	for _, b := range brackets {
		sum += max(0, min(total, b.upTo)-from) * b.rate / 10_000
		from = b.upTo
	}
	return sum
}

func reservedCPU(cpu int64) int64 {
	return bracketed(cpu, []bracket{{cluster.VCPU, 600}, {2 * cluster.VCPU, 100}, {4 * cluster.VCPU, 50}, {1 << 62, 25}})
}

func gkeMemory(memory int64) int64 {
	const gib = 1 << 30
	if memory < gib {
		return 255 * mebibyte
	}
	return bracketed(memory, []bracket{{4 * gib, 2500}, {8 * gib, 2000}, {16 * gib, 1000}, {128 * gib, 600}, {1 << 62, 200}})
}
