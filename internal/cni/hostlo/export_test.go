package hostlo

import (
	"errors"

	"github.com/containernetworking/plugins/pkg/ns"

	"unnest/internal/cni/attachment"
	"unnest/internal/cni/loopback"
)

// SetState lets each test have its own.
func SetState(dir string) { state = attachment.State(dir) }

// Fail makes what is done to the pod's lo fail at one point.
func Fail(at string) {
	fault := errors.New("fault of the test")
	switch at {
	case "probe":
		lo.probe = func() error { return fault }
		lo.join = func(ns.NetNS, string, loopback.Config) error { return errors.New("unknown helper") }
	case "glue":
		lo.join = func(pod ns.NetNS, nic string, c loopback.Config) error {
			return errors.Join(fault, loopback.Join(pod, nic, c)) // as if half done
		}
	case "leave":
		lo.leave = func(ns.NetNS, string) error { return fault }
	}
}
