package qmp

import (
	"bytes"
	"context"
	"io"
	"net"
	"testing"
	"time"
)

// Whatever QEMU sends, from the greeting on, the client ends without a panic, and no call
// outlives the connection.
func FuzzClient(f *testing.F) {
	reply := func(text string) string { return greetingLine + `{"return": {}, "id": 1}` + "\n" + text }
	for _, seed := range []string{
		greetingLine, greetingLine + greetingLine, `{"return": {}, "id": 1}`,
		reply(`{"return": [{"name": "nic1-1", "type": "child<virtio-net-pci>"}], "id": 2}{"return": "/machine/rp1", "id": 3}{"return": [], "id": 4}`),
		reply(`{"event": "DEVICE_DELETED", "data": {"device": "nic1-1"}}{"return": [], "id": 2}{"error": {"class": "DeviceNotFound", "desc": "x"}, "id": 3}`),
		reply(`{"return": null, "id": 2}{"return": 5, "id": 2}{"return": {}, "id": 99}`),
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, said []byte) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		near, far := net.Pipe()
		defer far.Close()
		go func() { _, _ = io.Copy(io.Discard, far) }()
		go func() {
			_, _ = io.Copy(far, bytes.NewReader(said))
			_ = far.Close()
		}()
		c, err := New(ctx, near)
		if err == nil {
			events := c.Subscribe()
			_, _ = c.Peripherals(ctx)
			_, _ = c.Chardevs(ctx)
			_, _ = c.MemoryBackends(ctx)
			for err == nil {
				var e Event
				if e, err = events.Next(ctx); err == nil {
					_ = e.Device()
				}
			}
			events.Close()
			_ = c.Close()
		}
		if ctx.Err() != nil {
			t.Errorf("the client still waits after the end of the connection: %v", err)
		}
	})
}
