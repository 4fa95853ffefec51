package volumedriver

import (
	"context"
	"net"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/kubernetes-csi/csi-test/v5/pkg/sanity"
	"github.com/onsi/ginkgo/v2"
	"github.com/onsi/ginkgo/v2/types"
	"github.com/onsi/gomega"
	"google.golang.org/grpc"
)

// webhook is a controller that makes volumes as the webhook and the kubelet do. The suite asks one for each volume.
type webhook struct {
	csi.UnimplementedControllerServer
}

func (webhook) ControllerGetCapabilities(context.Context, *csi.ControllerGetCapabilitiesRequest) (*csi.ControllerGetCapabilitiesResponse, error) {
	return &csi.ControllerGetCapabilitiesResponse{Capabilities: []*csi.ControllerServiceCapability{{Type: &csi.ControllerServiceCapability_Rpc{
		Rpc: &csi.ControllerServiceCapability_RPC{Type: csi.ControllerServiceCapability_RPC_CREATE_DELETE_VOLUME},
	}}}}, nil
}

func (webhook) CreateVolume(_ context.Context, r *csi.CreateVolumeRequest) (*csi.CreateVolumeResponse, error) {
	return &csi.CreateVolumeResponse{Volume: &csi.Volume{VolumeId: r.GetName(), VolumeContext: map[string]string{
		isEphemeral: "true", podNamespace: "shop", podUID: "u1", volumeName: "data", volumeKey: "secret",
	}}}, nil
}

func (webhook) DeleteVolume(context.Context, *csi.DeleteVolumeRequest) (*csi.DeleteVolumeResponse, error) {
	return &csi.DeleteVolumeResponse{}, nil
}

// sanityProcess is set for the process of TestSanity that runs the cases.
const sanityProcess = "UNNEST_TEST_SANITY"

// The CSI project's suite of cases for a node finds no fault, and nothing is left.
func TestSanity(t *testing.T) {
	n := newNode(t)
	if os.Getenv(sanityProcess) == "" { // Ginkgo ends a process that has the flag -test.parallel
		cmd := exec.Command(os.Args[0], "-test.run=^TestSanity$", "-test.v")
		cmd.Env = append(os.Environ(), sanityProcess+"=1")
		if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), "--- PASS: TestSanity") {
			t.Errorf("%v\n%s", err, out)
		}
		return
	}
	if err := os.MkdirAll(n.dir+"/pods/u1", 0o755); err != nil {
		t.Fatal(err)
	}
	config := sanity.NewTestConfig()
	socket, _ := n.serve()
	config.Address, config.ControllerAddress = "unix://"+socket, "unix://"+n.dir+"/webhook.sock"
	config.TargetPath, config.StagingPath = n.dir+"/pods/u1/volumes", n.dir+"/staging"
	l, err := net.Listen("unix", n.dir+"/webhook.sock")
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer()
	csi.RegisterIdentityServer(server, n.driver)
	csi.RegisterControllerServer(server, webhook{})
	go func() { _ = server.Serve(l) }() // until Stop
	defer server.Stop()
	suite := sanity.GinkgoTest(&config)
	defer suite.Finalize()
	cases, reporter := ginkgo.GinkgoConfiguration()
	cases.FocusStrings = []string{"Identity Service", "Node Service"}
	var report ginkgo.Report
	ginkgo.ReportAfterSuite("count", func(r ginkgo.Report) { report = r })
	gomega.RegisterFailHandler(ginkgo.Fail)
	ginkgo.RunSpecs(t, "CSI", cases, reporter)
	if passed := report.SpecReports.CountWithState(types.SpecStatePassed); passed < 10 {
		t.Errorf("%d cases have passed", passed)
	}
	n.wantNothing(n.request("shop", "u1", nil))
}
