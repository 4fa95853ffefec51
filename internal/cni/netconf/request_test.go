package netconf

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"
)

// withKeys is least with another IPAM type and further keys.
func withKeys(ipam, keys string) string {
	return strings.Replace(strings.TrimSuffix(least, "}"), "host-local", ipam, 1) + keys + "}"
}

// Each request of a runtime is met or refused, except those that brfusion need not
// understand.
func TestReadRequest(t *testing.T) {
	const (
		ports    = `,"runtimeConfig":{"portMappings":[{"hostPort":8080,"containerPort":80,"protocol":"tcp"}]}`
		services = `,"services":{"ranges":["10.96.0.0/12"]}`
	)
	runtime := func(capability, value string) string {
		return fmt.Sprintf(`,"runtimeConfig":{%q:%s}`, capability, value)
	}
	optional := func(cni string) string { return `,"args":{"cni":` + cni + `}` }
	for _, c := range []struct {
		name, ipam, keys, args string
		refused                string // in the error; without: Requested is want
		want                   string
	}{
		{name: "nothing", ipam: "hostd"},
		{name: "Kubernetes", ipam: "hostd", args: "IgnoreUnknown=1;K8S_POD_NAMESPACE=n;K8S_POD_NAME=p;K8S_POD_INFRA_CONTAINER_ID=c;K8S_POD_UID=u"},
		{name: "Kubernetes without IgnoreUnknown", ipam: "hostd", args: "K8S_POD_NAME=p"},
		{name: "nerdctl", ipam: "hostd", args: "IgnoreUnknown=1;NERDCTL_CNI_DHCP_HOSTNAME=h"},
		{name: "hostlo's", ipam: "hostd", args: "UNNEST_SEGMENT=s;UNNEST_KEY=0123456789abcde=;UNNEST_MODE=plain"},
		{name: "unknown argument", ipam: "hostd", args: "IPS=10.0.0.1", refused: `CNI_ARGS: read "IPS": no such key; remove it, or add IgnoreUnknown=1`},
		{name: "unknown argument, IgnoreUnknown off", ipam: "hostd", args: "IgnoreUnknown=0;X=1", refused: `CNI_ARGS: read "X": `},
		{name: "unknown argument, IgnoreUnknown on", ipam: "hostd", args: "IgnoreUnknown=true;X=1"},
		{name: "malformed arguments", ipam: "hostd", args: "IP", refused: "CNI_ARGS: "},

		{name: "IP", ipam: "hostd", args: "IgnoreUnknown=1;IP=10.201.0.9", want: "10.201.0.9"},
		{name: "IP with length", ipam: "hostd", args: "IP=10.201.0.9/16", want: "10.201.0.9/16"},
		{name: "IP for a plugin", ipam: "static", args: "IP=10.201.0.9/16,fd00::9/64", want: "10.201.0.9/16 fd00::9/64"},
		{name: "IP of both families, as of nerdctl", ipam: "hostd", args: "IP=10.201.0.9", keys: runtime("ips", `["fd00::9"]`), want: "10.201.0.9 fd00::9"},
		{name: "ips", ipam: "host-local", keys: runtime("ips", `["10.201.0.9","fd00::9/64"]`), want: "10.201.0.9 fd00::9/64"},
		{name: "ips twice", ipam: "hostd", keys: runtime("ips", `["10.201.0.9"]`), args: "IP=10.201.0.9", want: "10.201.0.9"},
		{name: "optional ips replace IP", ipam: "hostd", keys: optional(`{"ips":["10.201.0.9"]}`), args: "IP=10.201.0.8", want: "10.201.0.9"},
		{name: "no ips", ipam: "dhcp", keys: runtime("ips", `[]`) + optional(`{"ips":[]}`), args: "IP="},
		{name: "null", ipam: "dhcp", keys: runtime("ips", `null`) + `,"args":null`},
		{name: "labels", ipam: "hostd", keys: optional(`{"labels":[{"key":"app","value":"a"}],"x":1}`) + `,"args2":{}`},
		{name: "bad IP", ipam: "hostd", args: "IP=10.201.0", refused: `give the pod the address "10.201.0" (CNI_ARGS IP): want ADDRESS`},
		{name: "bad length", ipam: "hostd", keys: runtime("ips", `["10.201.0.9/40"]`), refused: `"10.201.0.9/40" (runtimeConfig.ips): want ADDRESS`},
		{name: "zone", ipam: "hostd", keys: optional(`{"ips":["fe80::1%eth0"]}`), refused: `"fe80::1%eth0" (args.cni.ips): want ADDRESS`},
		{name: "IP of DHCP", ipam: "dhcp", args: "IP=10.201.0.9", refused: "(CNI_ARGS IP): the DHCP server chooses it; remove it, "},
		{name: "type of ips", ipam: "hostd", keys: runtime("ips", `"10.201.0.9"`), refused: "parse network configuration: runtimeConfig.ips: "},
		{name: "type of args", ipam: "hostd", keys: `,"args":[1]`, refused: "parse network configuration: args: "},
		{name: "gateway", ipam: "hostd", args: "IP=10.201.0.9;GATEWAY=10.201.0.2", refused: `give the pod the gateway "10.201.0.2" (CNI_ARGS GATEWAY): the host daemon`},
		{name: "gateway for a plugin", ipam: "static", args: "IP=10.201.0.9/16;GATEWAY=10.201.0.2", want: "10.201.0.9/16"},
		{name: "gateway of DHCP", ipam: "dhcp", args: "GATEWAY=10.201.0.2", refused: "the DHCP server chooses it"},

		{name: "MAC", ipam: "hostd", args: "IgnoreUnknown=1;MAC=02:00:00:00:00:05", refused: `give the pod the MAC "02:00:00:00:00:05" (CNI_ARGS MAC): the host chooses`},
		{name: "MAC with an IPAM plugin", ipam: "host-local", args: "MAC=02:00:00:00:00:05", refused: "(CNI_ARGS MAC): the host chooses"},
		{name: "capability mac", ipam: "dhcp", keys: runtime("mac", `"02:00:00:00:00:05"`), refused: "(runtimeConfig.mac): the host chooses"},
		{name: "optional mac", ipam: "hostd", keys: optional(`{"mac":"02:00:00:00:00:05"}`), refused: "(args.cni.mac): the host chooses"},
		{name: "empty MAC", ipam: "hostd", keys: runtime("mac", `""`), args: "MAC="},

		{name: "no ports", ipam: "hostd", keys: runtime("portMappings", `[]`)},
		{name: "no ports, null", ipam: "hostd", keys: runtime("portMappings", `null`)},
		{name: "no host port", ipam: "hostd", keys: runtime("portMappings", `[{"hostPort":0,"containerPort":80}]`)},
		{name: "ports", ipam: "hostd", keys: ports, refused: `publish host port 8080 (runtimeConfig.portMappings): the pod's own NIC bypasses the guest, ` +
			`which has the port; set "services", chain the plugin portmap, and declare the capability portMappings there only`},
		{name: "ports with services", ipam: "host-local", keys: ports + services, refused: "brfusion does not map ports; chain the plugin portmap, and declare"},
		{name: "type of ports", ipam: "hostd", keys: runtime("portMappings", `[1]`), refused: "parse network configuration: runtimeConfig.portMappings: "},

		{name: "ranges", ipam: "hostd", keys: runtime("ipRanges", `[[{"subnet":"10.1.0.0/16"}]]`), refused: `(runtimeConfig.ipRanges [[{"subnet":"10.1.0.0/16"}]]): the ipam.type "hostd"`},
		{name: "ranges with a plugin without ranges", ipam: "static", keys: runtime("ipRanges", `[[{}]]`), refused: "allocate from ranges"},
		{name: "ranges for the plugin", ipam: "host-local", keys: runtime("ipRanges", `[[{"subnet":"10.1.0.0/16"}]]`)},
		{name: "no ranges", ipam: "hostd", keys: runtime("ipRanges", `[]`)},
		{name: "GUID", ipam: "hostd", keys: runtime("infinibandGUID", `"c2:11:22:33:44:55:66:77"`), refused: "set the InfiniBand GUID"},
		{name: "device", ipam: "host-local", keys: runtime("deviceID", `"0000:04:00.5"`), refused: "use the device"},
		{name: "aliases", ipam: "hostd", keys: runtime("aliases", `{"net": ["db"]}`), refused: `(runtimeConfig.aliases {"net":["db"]}): brfusion has no name server`},
		{name: "segment", ipam: "hostd", keys: runtime("segment", `{"name":"s"}`), refused: "brfusion does not know it; remove it from the capabilities"},
		{name: "unknown capability for the IPAM plugin", ipam: "host-local", keys: runtime("pool", `"x"`)},
		{name: "information", ipam: "hostd", keys: `,"runtimeConfig":{"cgroupPath":"/x","io.kubernetes.cri.pod-annotations":{"a":"b"}}`},

		{name: "misspelled key", ipam: "host-local", keys: `,"bandwith":{"ingressRate":1}`, refused: `network configuration: read "bandwith": no such key; remove it, or use one of bandwidth, bridge, `},
		{name: "key of the plugin bridge", ipam: "host-local", keys: `,"ipMasq":true`, refused: `"ipMasq": no such key`},
		{name: "key of the plugin bridge that is off", ipam: "host-local", keys: `,"ipMasq":false,"vlan":0,"x":""`},
		{name: "keys of the runtime", ipam: "hostd", keys: `,"cni.dev/attachments":[1],"capabilities":{"ips":true},"dns":{"domain":"d"},"prevResult":null`},
		{name: "misspelled limit", ipam: "hostd", keys: `,"bandwidth":{"ingressrates":1}`, refused: `read "bandwidth.ingressrates": no such key; remove it, or use one of bandwidth.egressBurst, `},
		{name: "limit of the plugin bandwidth", ipam: "hostd", keys: runtime("bandwidth", `{"ingressRate":8,"ingressBurst":8,"unshapedSubnets":["10.0.0.0/8"]}`), refused: `"runtimeConfig.bandwidth.unshapedSubnets"`},
		{name: "limits", ipam: "hostd", keys: `,"bandwidth":null` + runtime("bandwidth", `{"ingressRate":8,"ingressBurst":8,"unshapedSubnets":null}`)},
		{name: "key of services", ipam: "hostd", keys: `,"services":{"ranges":["10.96.0.0/12"],"port":1}`, refused: `"services.port"`},
		{name: "case", ipam: "hostd", keys: `,"MTU":1400`},
		{name: "key of an IPAM plugin", ipam: `host-local","subnet":"10.201.0.0/16`},
		{name: "key of another IPAM plugin", ipam: `hostd","subnet":"10.201.0.0/16`, refused: `read "ipam.subnet": no such key; remove it, or use one of ipam.routes, ipam.type`},
	} {
		t.Run(c.name, func(t *testing.T) {
			conf, err := ParseBrFusion([]byte(withKeys(c.ipam, c.keys)))
			if err != nil {
				t.Fatal(err) // it would prevent a DEL
			}
			err = conf.ReadRequest(c.args)
			if c.refused != "" {
				if err == nil || !strings.Contains(err.Error(), c.refused) || strings.Contains(err.Error(), "\n") {
					t.Errorf("got %v, want one line with %q", err, c.refused)
				}
				if isArgs, isDecode := strings.HasPrefix(c.refused, "CNI_ARGS: "), strings.HasPrefix(c.refused, "parse "); errors.Is(err, ErrArgs) != isArgs || errors.Is(err, ErrDecode) != isDecode {
					t.Errorf("error %v has another kind", err)
				}
				return
			}
			var got []string
			for _, p := range conf.Requested {
				if p.Bits() < 0 {
					got = append(got, p.Addr().String())
				} else {
					got = append(got, p.String())
				}
			}
			if err != nil || strings.Join(got, " ") != c.want {
				t.Errorf("got %v, %v, want %q", got, err, c.want)
			}
		})
	}
}

func TestDNSCapability(t *testing.T) {
	c, err := ParseBrFusion([]byte(withKeys("hostd", `,"dns":{"nameservers":["10.0.0.1"],"domain":"d"},
		"runtimeConfig":{"dns":{"servers":["10.0.0.2"],"searches":["s"],"options":["ndots:5"]}}`)))
	if err == nil {
		err = c.ReadRequest("")
	}
	if d := c.DNS; err != nil || strings.Join(d.Nameservers, "") != "10.0.0.2" || d.Domain != "d" || len(d.Search) != 1 || len(d.Options) != 1 {
		t.Errorf("got %+v, %v", d, err)
	}
}

func TestHostloRequest(t *testing.T) {
	const after = `,"prevResult":{"cniVersion":"1.0.0","ips":[{"address":"10.0.0.2/16"}]}`
	for _, c := range []struct{ name, keys, args, refused string }{
		{"nothing", ``, "", ""},
		{"runtimes", `,"runtimeConfig":{"cgroupPath":"/x","io.kubernetes.cri.pod-annotations":{"a":"b"},"portMappings":[],"mac":""}`, "IgnoreUnknown=1;K8S_POD_NAME=p;X=1", ""},
		{"segment", `,"runtimeConfig":{"segment":{"name":"s","key":"0123456789abcdef"}}`, "UNNEST_SEGMENT=s;UNNEST_KEY=0123456789abcdef", ""},
		{"unknown argument", ``, "UNNEST_SEGMNT=s", `CNI_ARGS: read "UNNEST_SEGMNT": no such key`},
		{"IP", ``, "IP=10.0.0.9", `give the pod the address "10.0.0.9" (CNI_ARGS IP): an endpoint has the addresses of lo`},
		{"optional ips", `,"args":{"cni":{"ips":["10.0.0.9"]}}`, "", "(args.cni.ips)"},
		{"MAC", ``, "MAC=02:00:00:00:00:05", "(CNI_ARGS MAC)"},
		{"for the plugin before", after + `,"args":{"cni":{"ips":["10.0.0.9"]}}`, "IP=10.0.0.9;MAC=02:00:00:00:00:05;GATEWAY=10.0.0.1", ""},
		{"ips", `,"runtimeConfig":{"ips":["10.0.0.9"]}`, "", `support the capability (runtimeConfig.ips ["10.0.0.9"]): hostlo gives a pod only a localhost`},
		{"mac in a chain", after + `,"runtimeConfig":{"mac":"02:00:00:00:00:05"}`, "", "runtimeConfig.mac"},
		{"ports", `,"runtimeConfig":{"portMappings":[{"hostPort":8080}]}`, "", "runtimeConfig.portMappings"},
		{"bandwidth", `,"runtimeConfig":{"bandwidth":{"ingressRate":1}}`, "", "runtimeConfig.bandwidth"},
		{"misspelled key", `,"segmnt":"s"`, "", `read "segmnt": no such key; remove it, or use one of encryption, interface, key, mode, network, segment, span, server`},
		{"misspelled key of a segment", `,"runtimeConfig":{"segment":{"name":"s","key":"0123456789abcdef","mod":"plain"}}`, "", `"runtimeConfig.segment.mod"`},
		{"key of brfusion", `,"ipam":{"type":"hostd"}`, "", `"ipam": no such key`},
		{"empty", `,"ipam":{},"bandwidth":null`, "", ""},
	} {
		conf, err := ParseHostlo([]byte(strings.TrimSuffix(leastHostlo, "}")+c.keys+"}"), c.args)
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		err = conf.CheckRequest(c.args)
		if (err == nil) != (c.refused == "") || err != nil && (!strings.Contains(err.Error(), c.refused) || strings.Contains(err.Error(), "\n")) {
			t.Errorf("%s: got %v, want %q", c.name, err, c.refused)
		}
	}
}

func FuzzRequest(f *testing.F) {
	f.Add([]byte(least), "IgnoreUnknown=1;IP=10.0.0.1,fd00::1/64;MAC=02:00:00:00:00:01")
	f.Add([]byte(withKeys("hostd", `,"runtimeConfig":{"ips":["10.0.0.1/16"],"portMappings":[{"hostPort":1}],"mac":"x"}`)), "")
	f.Add([]byte(withKeys("static", `,"args":{"cni":{"ips":["10.0.0.1/16"],"mac":1}}`)), "K8S_POD_NAME=x")
	f.Fuzz(func(t *testing.T, in []byte, args string) {
		c, err := ParseBrFusion(in)
		if err != nil || c.ReadRequest(args) != nil {
			return
		}
		seen := map[netip.Addr]bool{}
		for _, p := range c.Requested {
			if !p.Addr().IsValid() || p.Addr().Zone() != "" || seen[p.Addr()] || c.IPAM.Type == DHCP {
				t.Errorf("accepted %s, %s with %v", in, args, c.Requested)
			}
			seen[p.Addr()] = true
		}
	})
}
