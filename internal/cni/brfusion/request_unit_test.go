package brfusion

import (
	"testing"

	"github.com/containernetworking/cni/pkg/skel"

	"unnest.io/unnest/internal/cni/netconf"
)

// The daemon is told the pod that the runtime names, and none if it names none.
func TestPodOfRequest(t *testing.T) {
	for args, want := range map[string]string{
		"IgnoreUnknown=1;K8S_POD_NAMESPACE=n;K8S_POD_NAME=p;K8S_POD_INFRA_CONTAINER_ID=c;K8S_POD_UID=u-1": "n/p/u-1",
		"IgnoreUnknown=1;K8S_POD_NAME=p": "//",
		"":                               "//",
	} {
		p := request(netconf.BrFusion{}, &skel.CmdArgs{Args: args}).GetPod()
		if got := p.GetNamespace() + "/" + p.GetName() + "/" + p.GetUid(); got != want {
			t.Errorf("%q: got %s, want %s", args, got, want)
		}
	}
}
