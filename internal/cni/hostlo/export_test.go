package hostlo

import (
	"errors"

	"github.com/containernetworking/plugins/pkg/ns"

	"unnest.io/unnest/internal/cni/loopback"
)

// Fail makes one operation on the pod's lo fail.
func Fail(at string) {
	fault := errors.New("fault of the test")
	switch at {
	case "probe":
		probe = func() error { return fault }
		join = func(ns.NetNS, string, loopback.Config) error { return errors.New("unknown helper") }
	case "join":
		join = func(pod ns.NetNS, nic string, c loopback.Config) error {
			return errors.Join(fault, loopback.Join(pod, nic, c)) // as if done in part
		}
	case "leave":
		leave = func(ns.NetNS, string) error { return fault }
	}
}
