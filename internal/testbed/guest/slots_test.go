package guest

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"unnest.io/unnest/internal/netdev/tap"
	"unnest.io/unnest/internal/testbed/lab"
	"unnest.io/unnest/internal/testbed/place"
	"unnest.io/unnest/internal/vmm/qmp"
)

// With as many slots as a node has pods, a NIC works in each slot, on any function of a
// device number and with both kinds of interrupts, and can be unplugged.
func TestManySlots(t *testing.T) {
	privileged(t)
	image := testImage(t)
	tests := []struct {
		name  string
		vcpus int
		slots int
		plug  []int
	}{
		{"interrupt vectors", 2, 112, []int{1, 8, 9, 64, 112}},
		{"interrupt lines", 1, MaxSlots, []int{1, MaxSlots}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
			defer cancel()
			l := testLab(t)
			_, signer := testKey(t)
			g := testGuest(t, l, image, signer, func(c *Config) { c.VCPUs, c.Slots = tt.vcpus, tt.slots })
			client, times, err := g.WaitReady(ctx, l.Dial, signer)
			if err != nil {
				t.Fatal(err)
			}
			defer client.Close()
			t.Logf("boot: %+v", times)
			q, err := qmp.Dial(ctx, g.path(ownerQMP))
			if err != nil {
				t.Fatal(err)
			}
			defer q.Close()
			for _, slot := range tt.plug {
				if err := plugNIC(ctx, l, q, slot); err != nil {
					t.Fatal(err)
				}
			}
			for _, slot := range tt.plug {
				if out, err := place.Output(ctx, client, "sh", "-c", useNIC, "sh", testMAC(slot), fmt.Sprintf("10.200.0.%d/24", 100+slot)); err != nil {
					t.Errorf("slot %d: %v: %s", slot, err, out)
				}
			}
			for _, slot := range tt.plug {
				begin := time.Now()
				if err := unplugNIC(ctx, q, slot); err != nil {
					t.Errorf("slot %d: %v", slot, err)
				}
				t.Logf("unplug from slot %d: %v", slot, time.Since(begin))
			}
			out, err := place.Output(ctx, client, "sh", "-c", "cat /sys/class/net/*/address")
			if err != nil || strings.Contains(string(out), testMAC(0)[:15]) {
				t.Errorf("addresses left in the guest: %s (%v)", out, err)
			}
		})
	}
}

// useNIC waits for the NIC with the address $1, sends a packet with it from a network
// namespace of its own, and moves it back to the guest's.
const useNIC = `set -e
for try in $(seq 100); do
	nic=$(grep -l "$1" /sys/class/net/*/address | cut -d/ -f5) && [ -n "$nic" ] && break
	sleep 0.1
done
[ -n "$nic" ] || { echo "no NIC $1"; exit 1; }
ip netns add "$nic"
ip link set "$nic" netns "$nic"
ip -n "$nic" address add "$2" dev "$nic"
ip -n "$nic" link set "$nic" up
timeout 20 ip netns exec "$nic" sh -c 'until busybox ping -c 1 -W 1 10.200.0.1; do :; done'
ip -n "$nic" link set "$nic" netns 1
ip netns delete "$nic"`

func testMAC(slot int) string { return fmt.Sprintf("02:00:00:00:01:%02x", slot) }

func plugNIC(ctx context.Context, l *lab.Lab, q *qmp.Client, slot int) error {
	var file *os.File
	name := fmt.Sprint("slot", slot)
	err := lab.Do(l.HostNS(), func() (err error) {
		file, err = tap.Open(tap.Device{Name: name, Bridge: lab.ManagementBridge, MTU: lab.MTU})
		return err
	})
	if err != nil {
		return err
	}
	defer file.Close()
	if err := q.SendFD(ctx, name, file); err != nil {
		return err
	}
	if err := q.NetdevAdd(ctx, map[string]any{"type": "tap", "id": "net" + name, "fd": name}); err != nil {
		return err
	}
	return q.DeviceAdd(ctx, map[string]any{
		"driver": "virtio-net-pci", "id": name, "netdev": "net" + name, "mac": testMAC(slot), "romfile": "",
		"bus": fmt.Sprint("rp", slot), "addr": "0",
	})
}

func unplugNIC(ctx context.Context, q *qmp.Client, slot int) error {
	name := fmt.Sprint("slot", slot)
	events := q.Subscribe(qmp.EventDeviceDeleted)
	defer events.Close()
	if err := q.DeviceDel(ctx, name); err != nil {
		return err
	}
	for {
		e, err := events.Next(ctx)
		if err != nil {
			return err
		}
		if e.Device() == name {
			break
		}
	}
	return q.NetdevDel(ctx, "net"+name)
}
