package kubernetes

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	helpers "k8s.io/component-helpers/resource"
	"sigs.k8s.io/json"
)

type claim struct{ namespace, name string }

// volume is what matters of a PersistentVolume.
type volume struct {
	nodes  *corev1.NodeSelector
	shared bool // several nodes can attach it
}

// sharesVolume reports whether containers of the pod share files that one of them may write.
func sharesVolume(p *corev1.Pod) bool {
	for _, v := range p.Spec.Volumes {
		if v.ConfigMap != nil || v.Secret != nil || v.Projected != nil || v.DownwardAPI != nil || v.Image != nil || v.NFS != nil {
			continue
		}
		mounts := 0
		count := func(c *corev1.Container) {
			if slices.ContainsFunc(c.VolumeMounts, func(m corev1.VolumeMount) bool { return m.Name == v.Name }) ||
				slices.ContainsFunc(c.VolumeDevices, func(m corev1.VolumeDevice) bool { return m.Name == v.Name }) {
				mounts++
			}
		}
		for i := range p.Spec.InitContainers { // what one has prepared is read by others
			count(&p.Spec.InitContainers[i])
		}
		for i := range p.Spec.Containers {
			count(&p.Spec.Containers[i])
		}
		if mounts > 1 {
			return true
		}
	}
	return false
}

func claims(p *corev1.Pod) (all []claim) {
	for _, v := range p.Spec.Volumes {
		switch {
		case v.PersistentVolumeClaim != nil:
			all = append(all, claim{p.Namespace, v.PersistentVolumeClaim.ClaimName})
		case v.Ephemeral != nil:
			all = append(all, claim{p.Namespace, p.Name + "-" + v.Name})
		}
	}
	return all
}

// hasDisk reports whether the pod has a disk without a claim, which one node can attach.
func hasDisk(p *corev1.Pod) bool {
	return slices.ContainsFunc(p.Spec.Volumes, func(v corev1.Volume) bool {
		return v.AWSElasticBlockStore != nil || v.GCEPersistentDisk != nil || v.AzureDisk != nil || v.ISCSI != nil || v.RBD != nil
	})
}

// storage returns the ephemeral storage that a pod requests, in bytes.
func storage(p *corev1.Pod) int64 {
	asks := func(c corev1.Container) bool { return !c.Resources.Requests.StorageEphemeral().IsZero() }
	if !slices.ContainsFunc(p.Spec.Containers, asks) && !slices.ContainsFunc(p.Spec.InitContainers, asks) && p.Spec.Overhead.StorageEphemeral().IsZero() {
		return 0
	}
	all := helpers.PodRequests(p, helpers.PodResourcesOptions{})
	return all.StorageEphemeral().Value()
}

// Volume reads a PersistentVolume.
func (d *Dump) Volume(raw []byte) error {
	var v corev1.PersistentVolume
	if err := json.UnmarshalCaseSensitivePreserveInts(raw, &v); err != nil {
		return err
	}
	if v.Spec.ClaimRef == nil || v.Status.Phase != "" && v.Status.Phase != corev1.VolumeBound {
		return nil
	}
	known := volume{shared: slices.ContainsFunc(v.Spec.AccessModes, func(m corev1.PersistentVolumeAccessMode) bool {
		return m == corev1.ReadWriteMany || m == corev1.ReadOnlyMany
	})}
	if v.Spec.NodeAffinity != nil {
		known.nodes = v.Spec.NodeAffinity.Required
	}
	d.volumes[claim{v.Spec.ClaimRef.Namespace, v.Spec.ClaimRef.Name}] = known
	return nil
}

// CSINode reads how many volumes the drivers of a node can attach (storage/v1).
func (d *Dump) CSINode(raw []byte) error {
	var n storagev1.CSINode
	if err := json.UnmarshalCaseSensitivePreserveInts(raw, &n); err != nil {
		return err
	}
	for _, driver := range n.Spec.Drivers {
		if most := driver.Allocatable; most != nil && most.Count != nil {
			d.attach(n.Name, int64(*most.Count))
		}
	}
	return nil
}

// attach notes how many volumes a node can attach, the least of all drivers.
func (d *Dump) attach(node string, count int64) {
	if most, known := d.attachable[node]; !known || count < most {
		d.attachable[node] = count
	}
}

// attached adds the demands of the volumes of a pod.
func (d *Dump) attached(p *pod) {
	for _, c := range p.claims {
		v, known := d.volumes[c]
		switch {
		case !known:
			p.count(unknownVolume)
		case d.nodeTerms(p, v.nodes):
			p.count(volumeNodes)
		}
		if known && !v.shared && d.users[c] > 1 {
			p.count(sharedClaim)
		}
	}
}

// bytesOf returns a quantity in bytes, 0 if it is not there.
func bytesOf(q resource.Quantity) int64 { return max(0, q.Value()) }
