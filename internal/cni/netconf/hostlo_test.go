package netconf

import (
	"errors"
	"strings"
	"testing"

	"unnest.io/unnest/internal/hostapi/segment"
)

const leastHostlo = `{"cniVersion":"1.0.0","name":"split","type":"hostlo","server":"10.200.0.1:7443"}`

func TestHostloDefaults(t *testing.T) {
	c, err := ParseHostlo([]byte(leastHostlo), "")
	if err != nil {
		t.Fatal(err)
	}
	if c.Server.String() != "10.200.0.1:7443" || c.Credentials != DefaultCredentials || c.Wait != DefaultWait || c.Log ||
		c.Segment != (Segment{}) || c.Interface != "hostlo0" || c.PrevResult != nil {
		t.Errorf("got %+v", c)
	}
}

// Each source of a segment, and their precedence.
func TestHostloSegment(t *testing.T) {
	const (
		config  = `,"segment":"configured","key":"0123456789abcde1"`
		notes   = `"io.kubernetes.cri.pod-annotations":{"unnest.io/segment":"annotated","unnest.io/segment-key":"0123456789abcde2","other":"x"}`
		given   = `"segment":{"name":"given","key":"0123456789abcde4"}`
		args    = "IgnoreUnknown=1;K8S_POD_NAME=web-0;UNNEST_SEGMENT=argued;UNNEST_KEY=0123456789abcde3"
		runtime = `,"runtimeConfig":`
	)
	for _, c := range []struct {
		name, keys, args string
		want             Segment
	}{
		{"nothing", ``, "IgnoreUnknown=1;X=a=b", Segment{}},
		{"no name", `,"mode":"plain"`, "", Segment{}},
		{"configuration", config, "", Segment{"configured", "0123456789abcde1", ""}},
		{"its mode", config + `,"mode":"plain"`, "", Segment{"configured", "0123456789abcde1", "plain"}},
		{"annotations", config + runtime + "{" + notes + "}", "", Segment{"annotated", "0123456789abcde2", ""}},
		{"arguments", config + runtime + "{" + notes + "}", args, Segment{"argued", "0123456789abcde3", ""}},
		{"annotations in a namespace", runtime + "{" + notes + "}", "K8S_POD_NAMESPACE=shop", Segment{"shop.annotated", "0123456789abcde2", ""}},
		{"annotations in a namespace that looks like another's", runtime + "{" + strings.Replace(notes, "annotated", "shop.annotated", 1) + "}", "K8S_POD_NAMESPACE=thief",
			Segment{"thief.shop.annotated", "0123456789abcde2", ""}},
		{"others in a namespace", config, "K8S_POD_NAMESPACE=shop", Segment{"configured", "0123456789abcde1", ""}},
		{"a long namespace", runtime + "{" + notes + "}", "K8S_POD_NAMESPACE=" + strings.Repeat("x", 60),
			Segment{"N60f18149d073d6b0d922b5a22bcc5de3da9ec2283bb3d8e2213fef8be9c79", "0123456789abcde2", ""}},
		{"a key in base64", "", "UNNEST_SEGMENT=s;UNNEST_KEY=+/+/+/+/+/+/+/+/=", Segment{"s", "+/+/+/+/+/+/+/+/=", ""}},
		{"their mode", config, args + ";UNNEST_MODE=plain", Segment{"argued", "0123456789abcde3", "plain"}},
		{"the configuration's mode", `,"mode":"plain"`, args, Segment{"argued", "0123456789abcde3", "plain"}},
		{"capability", config + runtime + "{" + notes + "," + given + "}", args, Segment{"given", "0123456789abcde4", ""}},
		{"empty capability", runtime + `{"segment":null}`, "", Segment{}},
	} {
		in := strings.TrimSuffix(leastHostlo, "}") + c.keys + "}"
		got, err := ParseHostlo([]byte(in), c.args)
		if err != nil || got.Segment != c.want {
			t.Errorf("%s: got %+v, %v, want %+v", c.name, got.Segment, err, c.want)
		}
	}
}

func TestHostloErrors(t *testing.T) {
	long := strings.Repeat("x", 129)
	for _, c := range []struct {
		keys, args, want string
		is               error
	}{
		{`,"server":"x"`, "", "server ", nil},
		{`,"credentials":"etc"`, "", "credentials ", nil},
		{`,"wait":"0s"`, "", "wait ", nil},
		{`,"interface":"a/b"`, "", "interface ", nil},
		{`,"interface":"lo"`, "", "interface ", nil},
		{`,"segment":"s"`, "", "network configuration: key is missing", nil},
		{`,"key":"s"`, "", "network configuration: segment is missing", nil},
		{`,"segment":"-s","key":"0123456789abcdef"`, "", `network configuration: segment "-s"`, nil},
		{`,"segment":"` + long[:64] + `","key":"0123456789abcdef"`, "", "segment ", nil},
		{`,"segment":"s","key":"` + long + `"`, "", "network configuration: key: ", nil},
		{`,"segment":"s","key":"0123456789abcde"`, "", "network configuration: key: want 16 to 128", nil},
		{`,"mode":"loud"`, "", `mode "loud"`, nil},
		{`,"segment":1`, "", "segment", ErrDecode},
		{`,"runtimeConfig":{"segment":{"name":"s"}}`, "", "runtimeConfig: segment.key is missing", nil},
		{`,"runtimeConfig":{"io.kubernetes.cri.pod-annotations":{"unnest.io/segment":"s"}}`, "", "unnest.io/segment-key is missing", nil},
		{``, "UNNEST_SEGMENT=s", "CNI_ARGS: UNNEST_KEY is missing", ErrArgs},
		{``, "UNNEST_KEY=s", "CNI_ARGS: UNNEST_SEGMENT is missing", ErrArgs},
		{``, "UNNEST_SEGMENT=s;UNNEST_KEY=a b c d e f g h i", "CNI_ARGS: UNNEST_KEY: ", ErrArgs},
		{``, "UNNEST_SEGMENT=s;UNNEST_KEY=0123456789abcdef;UNNEST_MODE=x", "CNI_ARGS: UNNEST_MODE ", ErrArgs},
		{``, "UNNEST_SEGMENT", "CNI_ARGS: ", ErrArgs},
		{`,"cni.dev/valid-attachments":{}`, "", "valid-attachments", ErrDecode},
		{`,"prevResult":{"cniVersion":"1.0.0","ips":"x"}`, "", "prevResult", nil},
	} {
		in := strings.TrimSuffix(leastHostlo, "}") + c.keys + "}"
		_, err := ParseHostlo([]byte(in), c.args)
		if err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "\n") || c.is != nil && !errors.Is(err, c.is) {
			t.Errorf("%s, %s: got %v, want one line with %q", c.keys, c.args, err, c.want)
		}
	}
	_, err := ParseHostlo([]byte(strings.TrimSuffix(leastHostlo, "}")+`,"segment":"s","key":"top secret"}`), "")
	if err == nil || strings.Contains(err.Error(), "top") {
		t.Errorf("the error shows the key: %v", err)
	}
}

func FuzzHostlo(f *testing.F) {
	f.Add([]byte(leastHostlo), "")
	f.Add([]byte(strings.Replace(leastHostlo, `"type"`, `"segment":"s","key":"0123456789abcdef","mode":"plain","type"`, 1)), "IgnoreUnknown=1")
	f.Add([]byte(strings.Replace(leastHostlo, `"type"`, `"runtimeConfig":{"segment":{"name":"s","key":"0123456789abcdef"}},"type"`, 1)), "")
	f.Add([]byte(leastHostlo), "UNNEST_SEGMENT=s;UNNEST_KEY=0123456789abcdef;UNNEST_MODE=plain")
	f.Fuzz(func(t *testing.T, in []byte, args string) {
		c, err := ParseHostlo(in, args)
		if err != nil {
			return
		}
		s := c.Segment
		if !c.Server.IsValid() || c.Interface == "" || len(c.Interface) > 15 || len(s.Name) > maxName || len(s.Key) > maxKey ||
			(s.Name == "") != (s.Key == "") || s.Mode != "" && s.Mode != segment.Unicast && s.Mode != segment.Plain {
			t.Errorf("accepted %s, %s as %+v", in, args, c)
		}
	})
}

// A segment with span network is named by numbers and addresses, and by nothing of the host daemon's.
func TestHostloNetwork(t *testing.T) {
	const least = `{"cniVersion":"1.0.0","name":"split","type":"hostlo","span":"network"`
	const network = `,"network":{"vni":7,"fraction":1,"nodes":["10.0.0.1","10.0.0.2"]}`
	notes := func(text string) string {
		return `,"runtimeConfig":{"io.kubernetes.cri.pod-annotations":{` + text + `}}`
	}
	for _, c := range []struct {
		keys  string
		vni   uint32 // 0: none
		waits bool
		want  string // a part of the error
	}{
		{"", 0, false, ""},
		{network, 7, false, ""},
		{network + notes(`"unnest.io/segment":"x","unnest.io/segment-network":"{\"vni\":8,\"fraction\":2,\"nodes\":[\"10.0.0.1\",\"10.0.0.2\"]}"`), 8, false, ""},
		{notes(`"unnest.io/segment":"x"`), 0, true, ""},
		{notes(`"other":"x"`), 0, false, ""},
		{notes(`"unnest.io/segment-network":"x"`), 0, false, "annotations of the pod: unnest.io/segment-network"},
		{`,"network":{"nodes":["x"]}`, 0, false, "parse network configuration"},
		{network + `,"server":"10.0.0.1:1"`, 0, false, `server: a segment with span "network" needs none`},
		{network + `,"segment":"x"`, 0, false, `segment: a segment with span "network" needs none`},
		{network + `,"mode":"plain"`, 0, false, `mode: a segment with span "network" needs none`},
		{network + `,"encryption":"wireguard"`, 7, false, ""},
		{`,"encryption":"ipsec"`, 0, false, `encryption "ipsec": want "none" or "wireguard"`},
		{`,"network":{"vni":7,"port":1}`, 7, false, `"network.port": no such key`},
	} {
		got, err := ParseHostlo([]byte(least+c.keys+"}"), "")
		if err == nil {
			err = got.CheckKeys()
		}
		if c.want != "" {
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%s: error %v, want %q", c.keys, err, c.want)
			}
			continue
		}
		if err != nil || (got.Network == nil) != (c.vni == 0) || got.Network != nil && got.Network.VNI != c.vni || got.Waits != c.waits {
			t.Errorf("%s: got %+v, waits %v, %v", c.keys, got.Network, got.Waits, err)
		}
	}
	for keys, want := range map[string]string{network: `they are for span "network"`, `,"encryption":"wireguard"`: `they are for span "network"`, `,"span":"x"`: `span "x": want "host" or "network"`} {
		if _, err := ParseHostlo([]byte(strings.TrimSuffix(leastHostlo, "}")+keys+"}"), ""); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v, want %q", keys, err, want)
		}
	}
}
