package splitpod

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// VolumeDriver is the CSI driver of volumes that several fractions have, whose attributes package
// volumedriver reads.
const VolumeDriver = "volumes.unnest.io"

// maxVolumeName is the longest name of a volume of the host, in bytes.
const maxVolumeName = 31

// share gives each fraction the volumes that its containers use. The first one also gets those of the init
// containers, and those that none uses.
func (o Options) share(p *corev1.Pod, fractions []fraction) error {
	for _, v := range p.Spec.Volumes {
		var in []int
		var users []string
		for i, f := range fractions {
			containers := f.Containers
			if i == 0 {
				containers = slices.Concat(containers, p.Spec.InitContainers)
			}
			if user := userOf(containers, v.Name); user != "" {
				in, users = append(in, i), append(users, user)
			}
		}
		if len(in) == 0 {
			in = []int{0}
		}
		if len(in) > 1 && !copied(v) {
			var err error
			if v.VolumeSource, err = o.common(v); err == nil && v.CSI != nil && p.Spec.HostUsers != nil && !*p.Spec.HostUsers {
				err = errors.New("the runtime cannot map the owners of its files, as hostUsers: false asks")
			}
			if err != nil {
				return fmt.Errorf("volume %q is used by the containers %q and %q of two fractions, and %w; put both into one fraction", v.Name, users[0], users[1], err)
			}
		}
		for _, i := range in {
			fractions[i].Volumes = append(fractions[i].Volumes, v)
		}
	}
	return nil
}

// common returns what several fractions have in place of a volume.
func (o Options) common(v corev1.Volume) (corev1.VolumeSource, error) {
	switch {
	case v.EmptyDir != nil && o.Span == SpanNetwork:
		return v.VolumeSource, errors.New("an emptyDir is on one host, which those of the span network need not have")
	case v.EmptyDir != nil && v.EmptyDir.Medium != corev1.StorageMediumDefault:
		return v.VolumeSource, fmt.Errorf("an emptyDir of medium %s is in the memory of one node", v.EmptyDir.Medium)
	case v.EmptyDir != nil:
		name := v.Name
		if len(name) > maxVolumeName {
			name = fmt.Sprintf("%x", sha256.Sum256([]byte(name)))[:maxVolumeName]
		}
		return corev1.VolumeSource{CSI: &corev1.CSIVolumeSource{Driver: VolumeDriver, VolumeAttributes: map[string]string{"name": name, "key": o.Key}}}, nil
	case v.PersistentVolumeClaim != nil:
		modes, err := o.Claim(v.PersistentVolumeClaim.ClaimName)
		if err != nil {
			err = fmt.Errorf("its claim cannot be read (%w): create the claim before the pod", err)
		} else if !manyNodes(modes) {
			err = fmt.Errorf("its claim %q has the access modes %v, of which neither ReadWriteMany nor ReadOnlyMany lets several nodes mount it", v.PersistentVolumeClaim.ClaimName, modes)
		}
		return v.VolumeSource, err
	}
	return v.VolumeSource, errors.New("nodes cannot share it")
}

// Claims returns the PersistentVolumeClaims of a pod that waits for a place.
func Claims(p *corev1.Pod) (names []string) {
	if !placeless(p) {
		return nil
	}
	companions, _ := Companions(p)
	for _, f := range append(companions, p) {
		for _, v := range f.Spec.Volumes {
			if v.PersistentVolumeClaim != nil {
				names = append(names, v.PersistentVolumeClaim.ClaimName)
			}
		}
	}
	return names
}

// manyNodes reports whether any nodes can mount a claim at the same time.
func manyNodes(modes []corev1.PersistentVolumeAccessMode) bool {
	return slices.Contains(modes, corev1.ReadWriteMany) ||
		len(modes) > 0 && !slices.ContainsFunc(modes, func(m corev1.PersistentVolumeAccessMode) bool { return m != corev1.ReadOnlyMany })
}

// ofHost reports whether a volume is one that several fractions have.
func ofHost(v corev1.Volume) bool { return v.CSI != nil && v.CSI.Driver == VolumeDriver }
