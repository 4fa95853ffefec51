package netconf

import (
	"net/netip"
	"strings"
	"testing"
	"time"
)

const least = `{"cniVersion":"1.0.0","name":"brfusion","type":"brfusion","server":"10.200.0.1:7443","ipam":{"type":"host-local"}}`

func TestDefaults(t *testing.T) {
	c, err := ParseBrFusion([]byte(least))
	if err != nil {
		t.Fatal(err)
	}
	if c.Server != netip.MustParseAddrPort("10.200.0.1:7443") || c.Credentials != "/etc/unnest" || c.Bridge != "" ||
		c.MTU != 0 || c.Wait != 30*time.Second || c.Log || c.IPAM.Type != "host-local" || c.CNIVersion != "1.0.0" || c.PrevResult != nil {
		t.Errorf("got %+v", c)
	}
}

func TestAllKeys(t *testing.T) {
	c, err := ParseBrFusion([]byte(`{"cniVersion":"1.0.0","name":"n","type":"brfusion","server":"[fd00::1]:7443","credentials":"/c",
		"bridge":"br0","mtu":1400,"wait":"1m30s","log":true,"ipam":{"type":"static","addresses":[]},"runtimeConfig":{},
		"prevResult":{"cniVersion":"1.0.0","interfaces":[{"name":"eth0","mac":"02:00:00:00:00:01","sandbox":"/n"}],
		"ips":[{"address":"10.0.0.2/16","interface":0}]}}`))
	if err != nil {
		t.Fatal(err)
	}
	if c.Server.Addr() != netip.MustParseAddr("fd00::1") || c.Credentials != "/c" || c.Bridge != "br0" || c.MTU != 1400 ||
		c.Wait != 90*time.Second || !c.Log || c.PrevResult == nil {
		t.Errorf("got %+v", c)
	}
}

func TestErrorsNameTheKey(t *testing.T) {
	for _, c := range []struct{ old, new, want string }{
		{`"server":"10.200.0.1:7443"`, `"x":1`, "server is missing"},
		{`"10.200.0.1:7443"`, `"10.200.0.1"`, "server "},
		{`"10.200.0.1:7443"`, `"10.200.0.1:0"`, "server "},
		{`"10.200.0.1:7443"`, `"0.0.0.0:7443"`, "server "},
		{`"10.200.0.1:7443"`, `"host.example:7443"`, "server "},
		{`"10.200.0.1:7443"`, `7443`, "server: got a number, want a string"},
		{`"ipam":{"type":"host-local"}`, `"ipam":{}`, "ipam.type is missing"},
		{`"type":"brfusion"`, `"credentials":"etc"`, "credentials "},
		{`"type":"brfusion"`, `"bridge":"a/b"`, "bridge "},
		{`"type":"brfusion"`, `"bridge":"br%d"`, "bridge "},
		{`"type":"brfusion"`, `"bridge":"sixteen-bytes-ab"`, "bridge "},
		{`"type":"brfusion"`, `"mtu":67`, "mtu "},
		{`"type":"brfusion"`, `"mtu":65536`, "mtu "},
		{`"type":"brfusion"`, `"mtu":"1500"`, "mtu: got a string, want a whole number"},
		{`"type":"brfusion"`, `"wait":"30"`, "wait "},
		{`"type":"brfusion"`, `"wait":"0s"`, "wait "},
		{`"type":"brfusion"`, `"wait":"121s"`, "wait "},
		{`"type":"brfusion"`, `"log":"yes"`, "log: got a string, want true or false"},
		{`"type":"brfusion"`, `"prevResult":{"cniVersion":"1.0.0","ips":"x"}`, "prevResult: ips: got a string, want a list"},
		{`"type":"brfusion"`, `"mode":"macvtap"`, "mode "},
		{`"type":"brfusion"`, `"pool":1`, "pool: got a number, want true or false"},
		{`"type":"brfusion"`, `"bandwidth":{"ingressRate":8000}`, "bandwidth: ingressRate 8000"},
		{`"type":"brfusion"`, `"bandwidth":{"egressBurst":8000}`, "bandwidth: egressRate 0"},
		{`"type":"brfusion"`, `"bandwidth":{"egressRate":1,"egressBurst":34359738368}`, "bandwidth: egressBurst"},
		{`"type":"brfusion"`, `"runtimeConfig":{"bandwidth":{"ingressRate":8000}}`, "bandwidth: ingressRate 8000"},
		{`"name":"brfusion"`, `"name":{}`, "network configuration: name: got an object, want a string"},
		{`"type":"brfusion"`, `"services":{"ranges":"10.96.0.0/12"}`, "services.ranges: got a string, want a list"},
		{`"type":"brfusion"`, `"dns":1`, "dns: got a number, want an object"},
		{`"type":"brfusion"`, `"runtimeConfig":{"bandwidth":{"ingressRate":-1}}`, "runtimeConfig.bandwidth: ingressRate: got a number, want a whole number"},
		{`"type":"brfusion"`, `"services":{}`, "services.ranges is missing"},
		{`"type":"brfusion"`, `"services":{"ranges":["10.96.0.1/12"]}`, "services.ranges"},
		{`"type":"brfusion"`, `"services":{"ranges":["::/0"]}`, "services.ranges"},
		{`"type":"host-local"`, `"type":"a/b"`, "ipam.type "},
		{`"type":"host-local"`, `"type":"hostd","routes":1`, "ipam.routes"},
		{`"type":"host-local"`, `"type":"hostd","routes":[{"gw":"10.0.0.1"}]`, "ipam.routes"},
		{least, ``, "parse network configuration"},
		{least, `[]`, "parse network configuration"},
	} {
		in := strings.Replace(least, c.old, c.new, 1)
		if in == least {
			t.Fatalf("%s is not in the configuration", c.old)
		}
		_, err := ParseBrFusion([]byte(in))
		if err == nil || !strings.Contains(err.Error(), c.want) || strings.ContainsAny(err.Error(), "\n") || strings.Contains(err.Error(), "Go ") {
			t.Errorf("%s: got %v, want one line with %q, without words of Go", c.new, err, c.want)
		}
	}
}

func TestNewerKeys(t *testing.T) {
	c, err := ParseBrFusion([]byte(`{"cniVersion":"1.1.0","name":"n","type":"brfusion","server":"10.0.0.1:7443",
		"mode":"trunk","pool":false,"bandwidth":{"ingressRate":1,"ingressBurst":1},
		"runtimeConfig":{"bandwidth":{"egressRate":8000,"egressBurst":80000}},
		"services":{"ranges":["10.96.0.0/12","fd00:96::/112"]},
		"ipam":{"type":"hostd","routes":[{"dst":"0.0.0.0/0","gw":"10.0.0.1","mtu":1400}]}}`))
	if err != nil {
		t.Fatal(err)
	}
	if c.Mode != Trunk || !c.Cold || c.Bandwidth != (Bandwidth{EgressRate: 8000, EgressBurst: 80000}) || len(c.Services) != 2 ||
		c.IPAM.Delegated() || len(c.IPAM.Routes) != 1 || c.IPAM.Routes[0].MTU != 1400 {
		t.Errorf("got %+v", c)
	}
}

func TestDefaultsOfNewerKeys(t *testing.T) {
	for in, wantRoutes := range map[string]bool{`"hostd"`: false, `"hostd","routes":[]`: true, `"x","routes":"its own"`: false} {
		c, err := ParseBrFusion([]byte(strings.Replace(least, `"host-local"`, in, 1)))
		if err != nil {
			t.Fatal(err)
		}
		if c.Mode != Hotplug || c.Cold || c.Bandwidth != (Bandwidth{}) || c.Services != nil || (c.IPAM.Routes != nil) != wantRoutes {
			t.Errorf("%s: got %+v", in, c)
		}
	}
}

// Without a list it is not known which attachments are valid; with an empty list none is.
func TestValidAttachments(t *testing.T) {
	for _, c := range []struct {
		value    string
		complete bool
		n        int
		wrong    bool
	}{
		{``, false, 0, false},
		{`"cni.dev/valid-attachments":null,`, true, 0, false},
		{`"cni.dev/valid-attachments":[],`, true, 0, false},
		{`"cni.dev/valid-attachments":[{"containerID":"c","ifname":"eth0"}],`, true, 1, false},
		{`"cni.dev/valid-attachments":{},`, false, 0, true},
		{`"cni.dev/valid-attachments":[{"containerID":"c"},1],`, false, 0, true},
	} {
		in := []byte(strings.Replace(least, `"type":"brfusion"`, c.value+`"type":"brfusion"`, 1))
		got := ReadRelease(in)
		if err := got.ReadValid(in); (err != nil) != c.wrong || got.Complete != c.complete || len(got.ValidAttachments) != c.n {
			t.Errorf("%s: got %v, %v, error %v", c.value, got.Complete, got.ValidAttachments, err)
		}
	}
}

func FuzzConfig(f *testing.F) {
	f.Add([]byte(least))
	f.Add([]byte(strings.Replace(least, `"type":"brfusion"`, `"wait":"1s","mtu":9000,"bridge":"br0","credentials":"/x"`, 1)))
	f.Add([]byte(strings.Replace(least, `"type":"brfusion"`, `"prevResult":{"cniVersion":"1.0.0","ips":[{"address":"10.0.0.2/16"}]}`, 1)))
	f.Add([]byte(strings.Replace(least, `"1.0.0"`, `"0.3.1","prevResult":{"cniVersion":"0.3.1","ips":[{"version":"4","address":"10.0.0.2/16"}]}`, 1)))
	f.Add([]byte(strings.Replace(least, `"host-local"`, `"hostd","routes":[{"dst":"::/0","gw":"fd00::1"}]`, 1)))
	f.Add([]byte(strings.Replace(least, `"type":"brfusion"`, `"mode":"trunk","pool":false,"services":{"ranges":["10.96.0.0/12"]}`, 1)))
	f.Add([]byte(`{"server":"[::1%lo]:1","ipam":{"type":"x"}}`))
	f.Add([]byte(`null`))
	f.Add([]byte(`{`))
	f.Fuzz(func(t *testing.T, in []byte) {
		c, err := ParseBrFusion(in)
		if err != nil {
			return
		}
		if !c.Server.IsValid() || c.Server.Port() == 0 || c.Credentials[0] != '/' || c.Wait <= 0 || c.Wait > MaxWait ||
			c.MTU < 0 || c.MTU > maxMTU || len(c.Bridge) > 15 || c.IPAM.Type == "" ||
			(c.Mode != Hotplug && c.Mode != Trunk) || (c.Bandwidth.IngressRate == 0) != (c.Bandwidth.IngressBurst == 0) {
			t.Errorf("accepted %s as %+v", in, c)
		}
	})
}
