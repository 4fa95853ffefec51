package qmp

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// The output of QEMU 7.2. Only TAPs that QEMU has opened by name have a name.
func TestParseNetwork(t *testing.T) {
	const text = "hub 0\r\n" +
		" \\ hub0port1: #net336: index=0,type=tap,ifname=tapD,script=no,downscript=no\r\n" +
		" \\ hub0port0: virtio-net-pci.0: index=0,type=nic,model=virtio-net-pci,macaddr=52:54:00:12:34:57\r\n" +
		"rtl8139.0: index=0,type=nic,model=rtl8139,macaddr=52:54:00:12:34:56\r\n" +
		" \\ #net152: index=0,type=user,net=10.0.2.0,restrict=off\r\n" +
		"eth: index=0,type=nic,model=virtio-net-pci,macaddr=52:54:00:00:00:01\r\n" +
		" \\ n0: index=0,type=tap,ifname=tapA,script=no,downscript=no\r\n" +
		"virtio-net-pci.2: index=0,type=nic,model=virtio-net-pci,macaddr=52:54:00:00:00:02\r\n" +
		" \\ n1: index=0,type=tap,ifname=tapB,script=/etc/qemu-ifup,downscript=/etc/qemu-ifdown\r\n" +
		"virtio-net-pci.3: index=1,type=nic,\r\n" +
		" \\ n1: index=1,type=tap,ifname=tapB,script=no,downscript=no\r\n" +
		"nic1-1: index=0,type=nic,model=virtio-net-pci,macaddr=0a:00:01:01:00:01\r\n" +
		" \\ net1-1: index=0,type=tap,fd=27\r\n"
	want := map[string]string{"#net336": "tapD", "n0": "tapA", "n1": "tapB"}
	if diff := cmp.Diff(want, parseNetwork(text)); diff != "" {
		t.Errorf("TAPs (-want +got):\n%s", diff)
	}
}

// NICs leaves out what QEMU knows no netdev of, and returns no part of the list when its context ends on the way.
func TestNICs(t *testing.T) {
	ended := errors.New("pod is gone")
	for _, stop := range []bool{false, true} {
		ctx, cancel := context.WithCancelCause(t.Context())
		answers := []string{
			`{"return": [{"name": "type", "type": "string"}, {"name": "n0", "type": "child<virtio-net-pci>"}, {"name": "d0", "type": "child<virtio-blk-pci>"}]}`,
			`{"return": "net0"}`, `{"return": "02:00:00:00:00:01"}`, // of n0
			`{"error": {"class": "GenericError", "desc": "Property 'virtio-blk-pci.netdev' not found"}}`,
			`{"return": []}`, `{"return": [{"name": "device[0]", "type": "child<e1000>"}]}`,
			`{"return": ""}`, // of device[0], a NIC without a netdev
		}
		c := dialFake(t, func(f *fake) error {
			for i, answer := range answers {
				cmd, err := f.next()
				if err != nil {
					return err
				}
				if stop && i == len(answers)-1 {
					cancel(ended)
					return nil
				}
				if err := f.say(`%s, "id": %s}`, strings.TrimSuffix(answer, "}"), cmd.ID); err != nil {
					return err
				}
			}
			return nil
		})
		nics, err := c.NICs(ctx)
		if stop && (nics != nil || !errors.Is(err, ended)) {
			t.Errorf("ended: got %v, %v; want the cause", nics, err)
		}
		if want := []NIC{{"net0", "02:00:00:00:00:01"}}; !stop && (err != nil || !slices.Equal(nics, want)) {
			t.Errorf("got %v, %v; want %v", nics, err, want)
		}
		cancel(nil)
	}
}
