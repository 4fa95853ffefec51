package netconf

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"testing"
)

// A mistake in one key, whatever it is, leaves a DEL all that it needs of the others.
func TestReleaseOfOneMistake(t *testing.T) {
	good := map[string]any{
		"cniVersion": "1.0.0", "name": "net", "type": "brfusion", "server": "10.200.0.1:7443", "credentials": "/c", "bridge": "br0",
		"mode": "trunk", "pool": true, "mtu": 1400, "wait": "30s", "log": true, "ipam": map[string]any{"type": "host-local"},
		"bandwidth": map[string]any{"ingressRate": 1, "ingressBurst": 1}, "services": map[string]any{"ranges": []any{"10.96.0.0/12"}},
		"interface": "lo0", "segment": "s", "key": "0123456789abcdef", "dns": map[string]any{}, "args": map[string]any{},
		"runtimeConfig": map[string]any{"ips": []any{"10.0.0.1"}}, "capabilities": map[string]any{"ips": true}, "cni.dev/valid-attachments": []any{},
		"prevResult": map[string]any{"cniVersion": "1.0.0", "interfaces": []any{map[string]any{"name": "eth0"}}},
	}
	for key := range good {
		for _, wrong := range []any{nil, true, -1, 1.5, "", "wrong %d / value", []any{1}, map[string]any{"type": 1, "cniVersion": "9.9.9", "ips": 1}} {
			given := map[string]any{}
			for k, v := range good {
				given[k] = v
			}
			given[key] = wrong
			in, err := json.Marshal(given)
			if err != nil {
				t.Fatal(err)
			}
			r := ReadRelease(in)
			for k, ok := range map[string]bool{
				"name":        r.Name == "net",
				"server":      r.Server == netip.MustParseAddrPort("10.200.0.1:7443") && r.ServerError == nil,
				"credentials": r.Credentials == "/c",
				"ipam":        r.IPAM.Type == "host-local",
				"interface":   r.Interface == "lo0",
				"prevResult":  key == "cniVersion" || r.Chained && r.PrevResult != nil,
			} {
				if !ok && k != key {
					t.Errorf("%s is %v: %s is lost: %+v", key, wrong, k, r)
				}
			}
			if key == "server" && (r.ServerError == nil || r.Server.IsValid()) {
				t.Errorf("server is %v: got %v, %v", wrong, r.Server, r.ServerError)
			}
		}
	}
}

// No input ends a DEL, and what it reads it can use.
func FuzzRelease(f *testing.F) {
	f.Add([]byte(least))
	f.Add([]byte(leastHostlo))
	f.Add([]byte(`{"prevResult":{"cniVersion":"0.3.1","ips":[{"version":"4","address":"10.0.0.2/16"}]},"cniVersion":"0.3.1","cni.dev/valid-attachments":[]}`))
	f.Add([]byte(`null`))
	f.Fuzz(func(t *testing.T, in []byte) {
		r := ReadRelease(in)
		err := r.ReadValid(in)
		if (r.ServerError == nil) != r.Server.IsValid() || r.Credentials == "" || !isInterfaceName(r.Interface) || err != nil && r.Complete {
			t.Errorf("%s is read as %s", in, fmt.Sprintf("%+v, %v", r, err))
		}
	})
}

// The IPAM plugin sees the same valid attachments, and all other keys.
func TestWithValid(t *testing.T) {
	in := []byte(`{"name":"n","x":{"y":[1]},"cni.dev/valid-attachments":[{"containerID":"c1","ifname":"eth0"}]}`)
	c := ReadRelease(in)
	if err := c.ReadValid(in); err != nil {
		t.Fatal(err)
	}
	c.ValidAttachments = append(c.ValidAttachments, c.ValidAttachments[0])
	c.ValidAttachments[1].ContainerID = "c2"
	const all = `[{"containerID":"c1","ifname":"eth0"},{"containerID":"c2","ifname":"eth0"}]`
	out, err := c.WithValid(in)
	if want := `{"cni.dev/attachments":` + all + `,"cni.dev/valid-attachments":` + all + `,"name":"n","x":{"y":[1]}}`; err != nil || string(out) != want {
		t.Errorf("got %s, %v, want %s", out, err, want)
	}
}
