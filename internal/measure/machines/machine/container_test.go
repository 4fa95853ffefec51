package machine

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"unnest.io/unnest/internal/measure/stack"
	"unnest.io/unnest/internal/measure/workload"
	"unnest.io/unnest/internal/testbed/place"
)

// The number of queues is that of the NIC in the container's network namespace. Without a NIC it is an error.
func TestNICQueues(t *testing.T) {
	if os.Getenv("UNNEST_PRIVILEGED") != "1" {
		t.Skip("needs root: set UNNEST_PRIVILEGED=1")
	}
	container := func(link string) place.Place {
		return place.Within{Place: place.Local{}, Name: "container", Enter: []string{"unshare", "--mount", "--net", "sh", "-c", "mount -t sysfs sysfs /sys && " + link + ` && exec "$@"`, "sh"}}
	}
	if n, err := NICQueues(t.Context(), container("ip link add eth0 numrxqueues 3 numtxqueues 3 type veth peer name peer")); n != 3 || err != nil {
		t.Errorf("got %d queues, %v, want 3", n, err)
	}
	if n, err := NICQueues(t.Context(), container("true")); err == nil {
		t.Errorf("without a NIC: got %d queues", n)
	}
}

func TestNetworkArgs(t *testing.T) {
	ports := []workload.Port{{Protocol: workload.UDP, Number: 5001}, {Protocol: workload.TCP, Number: 5002}}
	tests := []struct {
		network stack.Network
		want    string
	}{
		{stack.HostNetwork, "--network host"},
		{stack.BrFusion, "--network brfusion"},
		{stack.NAT, "--publish 5001:5001/udp --publish 5002:5002/tcp"},
		{stack.OverlayNetwork, "--network none"},
		{stack.Hostlo, "--network hostlo"},
		{stack.HostloPlain, "--network hostlo-plain"},
	}
	for _, tt := range tests {
		if got := strings.Join(NetworkArgs(tt.network, ports), " "); got != tt.want {
			t.Errorf("%s: got %q, want %q", tt.network, got, tt.want)
		}
	}
}

// Names of containers follow the rules of the engines (Docker's daemon/names,
// containerd's identifiers) for every name of a configuration.
func TestContainerName(t *testing.T) {
	taken := regexp.MustCompile(`^[A-Za-z0-9]+(?:[._-][A-Za-z0-9]+)*$`)
	for name, want := range map[string]string{
		"metal.aufs.nat": "metal-aufs-nat", "BrFusion": "brfusion", "a--b_c (2)": "a-b-c-2",
		"ssh/containerd:storage=volume,host=ssh://root@10.0.0.5:2222": "ssh-containerd-storage-volume-host-ssh-root-10-0-0-5-2222",
	} {
		if got := ContainerName(stack.Configuration{Name: name}); got != want || !taken.MatchString(got) {
			t.Errorf("%s: got %s, want %s", name, got, want)
		}
	}
}
