// Package attachment is what the guest itself has of one attachment, a container's
// interface: a lock, so that one command is at it at a time, a note that it has
// still to be given back, and the pod's network namespace.
//
// What is attached, and how it is given back, belongs to the plugins.
package attachment

import (
	"fmt"

	cnins "github.com/containernetworking/cni/pkg/ns"
	"github.com/containernetworking/cni/pkg/skel"
	"github.com/containernetworking/cni/pkg/types"
	"github.com/containernetworking/plugins/pkg/ns"
)

// State is the directory of locks and notes. Like NICs they do not outlive the
// guest's boot.
type State string

// Run is where the plugins have it.
const Run State = "/run/unnest"

// OpenPod opens the network namespace that an ADD is for.
func OpenPod(args *skel.CmdArgs) (ns.NetNS, error) {
	if err := checkPod(args.Netns); err != nil {
		return nil, err
	}
	pod, err := ns.GetNS(args.Netns)
	if err != nil {
		return nil, types.NewError(types.ErrInvalidNetNS, fmt.Sprintf("open network namespace: %v", err), "")
	}
	return pod, nil
}

// PodOf returns nil when the pod's namespace is gone, unknown, or the guest's
// own, which no command may touch.
func PodOf(args *skel.CmdArgs) ns.NetNS {
	if args.Netns == "" || checkPod(args.Netns) != nil {
		return nil
	}
	pod, err := ns.GetNS(args.Netns)
	if err != nil {
		return nil
	}
	return pod
}

// checkPod refuses a path that is no pod's network namespace.
func checkPod(path string) error {
	own, cniErr := cnins.CheckNetNS(path)
	if cniErr != nil {
		return cniErr
	}
	if own {
		return types.NewError(types.ErrInvalidNetNS, fmt.Sprintf("network namespace %s is the guest's own, not a pod's", path), "")
	}
	return nil
}
