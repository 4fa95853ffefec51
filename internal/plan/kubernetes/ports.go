package kubernetes

import (
	"cmp"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// publishes adds the ports of the node that the pod uses. Two pods clash if they have a port and
// protocol, and one address or one of them all addresses.
func (d *Dump) publishes(p *pod, s *corev1.PodSpec) {
	number := func(of string) int32 {
		if d.ports[of] == 0 {
			d.number++
			d.ports[of] = d.number
		}
		return d.ports[of]
	}
	for _, c := range slices.Concat(s.InitContainers, s.Containers) {
		for _, port := range c.Ports {
			n := port.HostPort
			if s.HostNetwork {
				n = cmp.Or(n, port.ContainerPort)
			}
			if n <= 0 || c.RestartPolicy != nil && !sidecar(&c) {
				continue
			}
			p.count(hostPorts)
			of := fmt.Sprint(cmp.Or(string(port.Protocol), "TCP"), " ", n)
			address := cmp.Or(port.HostIP, allAddresses)
			has, forbids := []int32{number(of), number(of + " " + address)}, []int32{number(of + " " + allAddresses), number(of + " " + address)}
			if address == allAddresses {
				forbids = []int32{number(of)}
			}
			p.rules.Has = union(p.rules.Has, has)
			p.rules.Forbids = union(p.rules.Forbids, forbids)
		}
	}
}

const allAddresses = "0.0.0.0"

func union(a, b []int32) []int32 {
	a = slices.Concat(a, b)
	slices.Sort(a)
	return slices.Compact(a)
}
