package manifest

import (
	"maps"
	"slices"
	"strings"

	"unnest.io/unnest/internal/plan/summary"
)

// reservedDomains are those of labels that clouds, Kubernetes and Karpenter set themselves, and
// refuse from others. Subdomains belong to them.
var reservedDomains = []string{"kubernetes.io", "k8s.io", "karpenter.sh", "karpenter.k8s.aws", "eks.amazonaws.com", "k8s.aws", "csi.aws.com", "eksctl.io",
	"cloud.google.com", "gke.io", "kubernetes.azure.com", "disk.csi.azure.com"}

// allowedDomains are subdomains in which a tool may set labels.
var (
	allowedByKarpenter = []string{"node.kubernetes.io", "node-restriction.kubernetes.io", "kops.k8s.io"}
	allowedByKubelet   = []string{"node.kubernetes.io", "kubelet.kubernetes.io"}
)

// automatic are labels that each new VM has, because of its model, place and price.
var automatic = []string{"kubernetes.io/arch", "kubernetes.io/os", "kubernetes.io/hostname", "node.kubernetes.io/instance-type", "beta.kubernetes.io/arch", "beta.kubernetes.io/os", "beta.kubernetes.io/instance-type",
	"topology.kubernetes.io/zone", "topology.kubernetes.io/region", "failure-domain.beta.kubernetes.io/zone", "failure-domain.beta.kubernetes.io/region"}

// automaticPrefixes begin further ones.
var automaticPrefixes = []string{"karpenter.sh/capacity-type", "karpenter.k8s.aws/instance-", "eks.amazonaws.com/capacityType", "topology.ebs.csi.aws.com/", "topology.k8s.aws/", "topology.gke.io/", "topology.disk.csi.azure.com/"}

// labels returns those of a pool that a tool may set.
func labels(p summary.PoolCost, allowed []string) map[string]string {
	may := map[string]string{}
	for key, value := range p.Labels {
		if !reserved(key, allowed) && !slices.Contains(automatic, key) {
			may[key] = value
		}
	}
	return may
}

// missing returns the labels of a pool that pods select by, and that neither the tool sets nor a VM
// has by itself, as KEY=VALUE,….
func missing(p summary.PoolCost, allowed []string) string {
	var all []string
	for _, key := range slices.Sorted(maps.Keys(p.Labels)) {
		has := slices.Contains(automatic, key) || slices.ContainsFunc(automaticPrefixes, func(prefix string) bool { return strings.HasPrefix(key, prefix) })
		if reserved(key, allowed) && !has {
			all = append(all, key+"="+p.Labels[key])
		}
	}
	return strings.Join(all, ",")
}

func reserved(key string, allowed []string) bool {
	domain, _, ok := strings.Cut(key, "/")
	return ok && !slices.Contains(allowed, domain) && slices.ContainsFunc(reservedDomains, func(d string) bool { return domain == d || strings.HasSuffix(domain, "."+d) })
}

// room returns the most VMs of a group of which so many are needed, so that some can be replaced
// by new ones before they go.
func room(count int) int { return count + (count+9)/10 }
