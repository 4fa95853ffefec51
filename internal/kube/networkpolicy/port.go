package networkpolicy

import (
	"cmp"
	"math"
	"slices"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// named reports whether a port has a name, which only the destination knows as a number.
func named(p networkingv1.NetworkPolicyPort) bool {
	return p.Port != nil && p.Port.Type == intstr.String
}

// resolve returns the services that ports are at a destination, without duplicates.
func resolve(ports []networkingv1.NetworkPolicyPort, destination *pod) (services []Service) {
	for _, p := range ports {
		protocol := corev1.ProtocolTCP
		if p.Protocol != nil {
			protocol = *p.Protocol
		}
		switch {
		case p.Port == nil:
			services = append(services, Service{protocol, 0, math.MaxUint16})
		case named(p):
			services = append(services, destination.named(p.Port.StrVal, protocol)...)
		default:
			first, last := p.Port.IntVal, p.Port.IntVal
			if p.EndPort != nil {
				last = *p.EndPort
			}
			if 0 <= first && first <= last && last <= math.MaxUint16 {
				services = append(services, Service{protocol, uint16(first), uint16(last)})
			}
		}
	}
	slices.SortFunc(services, compare)
	return slices.Compact(services)
}

func compare(a, b Service) int {
	return cmp.Or(cmp.Compare(a.Protocol, b.Protocol), cmp.Compare(a.First, b.First), cmp.Compare(a.Last, b.Last))
}

// named returns the ports of the pod's containers that have a name.
func (p *pod) named(name string, protocol corev1.Protocol) (services []Service) {
	for _, port := range p.ports {
		if port.Name == name && cmp.Or(port.Protocol, corev1.ProtocolTCP) == protocol {
			number := uint16(port.ContainerPort)
			services = append(services, Service{protocol, number, number})
		}
	}
	return services
}
