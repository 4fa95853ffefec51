package kubernetes

import "unnest.io/unnest/internal/plan/cluster"

// demand is a kind of demand of a pod about its place.
type demand int

const (
	_ demand = iota
	podRoom
	storageRoom
	attachedVolumes
	sharedFiles
	hostPorts
	nodeSelector
	nodeAffinity
	tolerations
	antiAffinityNode
	antiAffinityZone
	spreadNode
	spreadZone
	affinityZone
	volumeNodes
	extendedResources
	onThisNode
	affinityNode
	affinityFirst
	sharedClaim
	unknownVolume
	cloudDisk
	namespaceLabels
	badSelector
	otherScheduler
	podGroup
	unknownField
	nodeRefuses
	preferences
	priority
	notMoved
	budgets
	budgetsNone
	demands
)

// table says what plans do about each kind of demand. docs/plan.md shows it.
var table = [demands]struct {
	fields, what string
	how          cluster.Honoured
}{
	podRoom:           {"`resources.requests` (cpu, memory) of containers, init containers, sidecars and the pod, `overhead`, a resize in place; pods of a node", "room for CPU, memory and pods", cluster.ByVM},
	storageRoom:       {"`resources.requests` (ephemeral-storage)", "ephemeral storage, up to what the least node of the pool has", cluster.ByVM},
	attachedVolumes:   {"`volumes`: persistentVolumeClaim, ephemeral", "volumes on a VM, up to what CSINodes or nodes of the pool allow, else what a node has today", cluster.Stricter},
	sharedFiles:       {"`volumes` that several containers mount: emptyDir, hostPath, persistentVolumeClaim and others that can be written", "volumes that containers share: the pod is not split", cluster.ByVM},
	hostPorts:         {"`ports`: hostPort, hostIP, protocol; all ports with `hostNetwork`", "host ports", cluster.ByVM},
	nodeSelector:      {"`nodeSelector`, also of a runtime class", "nodeSelector", cluster.ByPool},
	nodeAffinity:      {"`affinity.nodeAffinity`, required", "node affinity", cluster.ByPool},
	tolerations:       {"`tolerations`", "tolerations of taints", cluster.ByPool},
	antiAffinityNode:  {"`affinity.podAntiAffinity`, required, by `kubernetes.io/hostname`, with `namespaces`, `namespaceSelector`, `matchLabelKeys`, `mismatchLabelKeys`", "pod anti-affinity by node", cluster.ByVM},
	antiAffinityZone:  {"the same, by another label", "pod anti-affinity by zone", cluster.ByPool},
	spreadNode:        {"`topologySpreadConstraints`, DoNotSchedule, by `kubernetes.io/hostname`, with `minDomains`, `matchLabelKeys`, `nodeAffinityPolicy`, `nodeTaintsPolicy`", "topology spread by node: at most maxSkew on a VM, or more if all VMs have some", cluster.Stricter},
	spreadZone:        {"the same, by another label", "topology spread by zone", cluster.ByPool},
	affinityZone:      {"`affinity.podAffinity`, required, by another label than `kubernetes.io/hostname`", "pod affinity by zone", cluster.ByPool},
	volumeNodes:       {"`nodeAffinity` of PersistentVolumes", "persistent volumes, which may be of one zone", cluster.ByPool},
	extendedResources: {"`resources.requests` of anything else, `resourceClaims`", "resources that VMs of catalogues lack", cluster.Stays},
	onThisNode:        {"any of them that names a node, local PersistentVolumes, static pods", "demands that name a node", cluster.Stays},
	affinityNode:      {"`affinity.podAffinity`, required, by `kubernetes.io/hostname`", "pod affinity by node", cluster.Not},
	affinityFirst:     {"`affinity.podAffinity`, required, by another label, that only pods with such affinity meet, while other pods that match are elsewhere, such as in another zone", "pod affinity by zone that the first pod to move might not meet", cluster.Not},
	sharedClaim:       {"a PersistentVolumeClaim of several pods, unless its volume is ReadWriteMany or ReadOnlyMany", "a volume that pods share and only one node can attach", cluster.Not},
	unknownVolume:     {"a PersistentVolumeClaim whose PersistentVolume is not in the dump", "persistent volumes that the dump lacks, which may be of one node (add pv to kubectl get)", cluster.Not},
	cloudDisk:         {"`volumes`: awsElasticBlockStore, gcePersistentDisk, azureDisk, iscsi, rbd", "disks without a claim", cluster.Not},
	namespaceLabels:   {"`namespaceSelector` by labels of namespaces that are not in the dump", "pod anti-affinity to namespaces whose labels the dump lacks (add namespaces to kubectl get)", cluster.Not},
	badSelector:       {"a selector that is not valid", "a selector that is not valid", cluster.Not},
	otherScheduler:    {"`schedulerName` of another scheduler", "another scheduler, whose rules are unknown", cluster.Not},
	podGroup:          {"`schedulingGroup`", "groups of pods that are scheduled together", cluster.Not},
	unknownField:      {"fields that this version does not know", "fields that this version does not know", cluster.Not},
	nodeRefuses:       {"`nodeSelector`, node affinity or `tolerations` that its node does not meet, because labels or taints changed later", "labels and taints of their nodes, which changed after the pods came and would now refuse them", cluster.Not},
	preferences:       {"`preferredDuringSchedulingIgnoredDuringExecution`, ScheduleAnyway", "preferences", cluster.Ignored},
	priority:          {"`priority`, `preemptionPolicy`", "priority: all pods are placed, so none preempts another", cluster.Moot},
	notMoved:          {"annotations of autoscalers against moving", "", cluster.Later},
	budgets:           {"PodDisruptionBudgets", "disruption budgets: each step says in how many rounds its pods move", cluster.Later},
	budgetsNone:       {"PodDisruptionBudgets that allow no disruption", "disruption budgets that allow none today: steps that move their pods come last", cluster.Later},
}
