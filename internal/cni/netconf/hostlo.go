package netconf

import (
	"cmp"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strings"

	"unnest.io/unnest/internal/hostapi/segment"
)

// DefaultInterface is the endpoint's name in a pod whose interface another plugin
// has made.
const DefaultInterface = "hostlo0"

// The host daemon's limits of a segment's name and key, in bytes.
const (
	maxName = 63
	minKey  = 16
	maxKey  = 128
)

// Hostlo is the configuration of the plugin hostlo. Besides Base's keys it has:
//
//	"segment"    name of the segment of which the network's pods are fractions
//	"key"        secret of the segment: the first endpoint sets it, the others must know it
//	"mode"       "unicast" or "plain"; default: the segment's, for a new segment the
//	             host's default
//	"interface"  name of the endpoint in a pod to which an earlier plugin of the chain
//	             has given an interface; default "hostlo0". Otherwise the endpoint has
//	             the name that the runtime requests
//
//	"span"       "host": the endpoint is a NIC that the host daemon plugs; "network": it is a
//	             tunnel to the nodes of the other fractions; default "host"
//	"network"    with span "network": see Network
//	"encryption" with span "network": "wireguard": between the nodes' addresses inside WireGuard; default "none"
//
// With span "network" there is no host daemon, so the configuration has no server, segment, key and mode, and the
// pod's annotation unnest.io/segment-network has what "network" has.
//
// A runtime that knows segments can name one for each pod. The first of these
// sources that names a segment provides its name, key and mode; if it has no mode,
// the configuration's is used:
//
//   - the capability "segment": {"name": …, "key": …, "mode": …} in runtimeConfig
//   - CNI_ARGS: UNNEST_SEGMENT=…;UNNEST_KEY=…;UNNEST_MODE=…
//   - the pod's annotations unnest.io/segment, unnest.io/segment-key and
//     unnest.io/segment-mode, by the capability
//     "io.kubernetes.cri.pod-annotations", which containerd supports
//   - the configuration
type Hostlo struct {
	Base
	Segment   Segment  `json:"-"`       // of this pod; without a name: none
	Network   *Network `json:"network"` // of this pod, with SpanNetwork; nil: none
	Waits     bool     `json:"-"`       // with SpanNetwork: the pod is a fraction, and its nodes are not known yet
	Interface string   `json:"interface"`

	Encryption string `json:"encryption"` // with SpanNetwork; WireGuard, None or ""

	RawSegment string `json:"segment"`
	RawKey     string `json:"key"`
	RawMode    string `json:"mode"`
}

// Spans of a segment.
const (
	SpanHost    = "host"
	SpanNetwork = "network"
)

// Encryptions of tunnels.
const (
	None      = "none"
	WireGuard = "wireguard"
)

// Network says between which nodes a segment is. Package loopback checks it.
type Network struct {
	VNI      uint32       `json:"vni"`      // number of the segment in the tunnels
	Fraction int          `json:"fraction"` // of this pod, from 1 on
	Nodes    []netip.Addr `json:"nodes"`    // address of each fraction's node, in order
	Names    []string     `json:"names"`    // of these nodes; with the encryption WireGuard
}

// networkAnnotation has the JSON of a Network.
const networkAnnotation = "unnest.io/segment-network"

// chooseNetwork takes the annotation, or what the configuration has.
func (c *Hostlo) chooseNetwork() error {
	for key, value := range map[string]string{"server": c.RawServer, "segment": c.RawSegment, "key": c.RawKey, "mode": c.RawMode} {
		if value != "" {
			return fmt.Errorf("%w: %s: a segment with span %q needs none; remove it", errConfiguration, key, SpanNetwork)
		}
	}
	var noted map[string]string
	if err := c.capability(annotations, &noted); err != nil {
		return err
	}
	text := noted[networkAnnotation]
	if text == "" {
		c.Waits = c.Network == nil && noted[annotationKeys.name] != ""
		return nil
	}
	c.Network = &Network{}
	if err := json.Unmarshal([]byte(text), c.Network); err != nil {
		return fmt.Errorf("%w: %s: %w", errAnnotations, networkAnnotation, inWords(err))
	}
	return nil
}

// In Kubernetes, a segment that the pod's annotations name belongs to the pod's namespace, which the
// kubelet passes as K8S_POD_NAMESPACE: "web" of namespace shop is the host's segment "shop.web". So
// nobody can join a segment of another namespace, whatever names and keys he knows.

// annotations is containerd's and CRI-O's capability for the annotations of a pod.
const annotations = "io.kubernetes.cri.pod-annotations"

// Segment is the segment of which a pod is a fraction.
type Segment struct {
	Name string `json:"name"`
	Key  string `json:"key"`
	Mode string `json:"mode"` // "": the mode that the segment has
}

// The sources of a segment, besides ErrArgs and errConfiguration, in errors.
var (
	errRuntime     = fmt.Errorf("%w: runtimeConfig", errConfiguration)
	errAnnotations = errors.New("annotations of the pod")
)

// ParseHostlo parses the standard input of the plugin, and CNI_ARGS. An error names
// the key; it wraps ErrDecode when the input is not JSON of these types, and ErrArgs
// when the arguments are wrong.
func ParseHostlo(stdin []byte, args string) (Hostlo, error) {
	var c Hostlo
	err := parse(stdin, &c, &c.Base, func() error {
		c.Interface = cmp.Or(c.Interface, DefaultInterface)
		if !isInterfaceName(c.Interface) || c.Interface == "lo" {
			return fmt.Errorf("%w: interface %q: want the name of a network interface", errConfiguration, c.Interface)
		}
		switch c.RawSpan {
		case "", SpanHost:
			if c.Network != nil || c.Encryption != "" {
				return fmt.Errorf("%w: network, encryption: they are for span %q; set that, or remove them", errConfiguration, SpanNetwork)
			}
			return c.chooseSegment(args)
		case SpanNetwork:
			if !slices.Contains([]string{"", None, WireGuard}, c.Encryption) {
				return fmt.Errorf("%w: encryption %q: want %q or %q", errConfiguration, c.Encryption, None, WireGuard)
			}
			return c.chooseNetwork()
		}
		return fmt.Errorf("%w: span %q: want %q or %q", errConfiguration, c.RawSpan, SpanHost, SpanNetwork)
	})
	return c, err
}

// keys are a source's keys for name, key and mode of a segment.
type keys struct{ name, key, mode string }

var (
	configKeys     = keys{"segment", "key", "mode"}
	runtimeKeys    = keys{"segment.name", "segment.key", "segment.mode"}
	argKeys        = keys{"UNNEST_SEGMENT", "UNNEST_KEY", "UNNEST_MODE"}
	annotationKeys = keys{"unnest.io/segment", "unnest.io/segment-key", "unnest.io/segment-mode"}
)

func (k keys) segment(values map[string]string) Segment {
	return Segment{values[k.name], values[k.key], values[k.mode]}
}

// chooseSegment checks all sources and takes the first that names a segment.
func (c *Hostlo) chooseSegment(args string) error {
	values, err := ParseArgs(args)
	if err != nil {
		return err
	}
	var runtime Segment
	var noted map[string]string
	if err := cmp.Or(c.capability("segment", &runtime), c.capability(annotations, &noted)); err != nil {
		return err
	}
	for _, source := range []struct {
		where   error
		keys    keys
		segment Segment
	}{
		{errRuntime, runtimeKeys, runtime},
		{ErrArgs, argKeys, argKeys.segment(values)},
		{errAnnotations, annotationKeys, annotationKeys.segment(noted)},
		{errConfiguration, configKeys, Segment{c.RawSegment, c.RawKey, c.RawMode}},
	} {
		if err := source.segment.check(source.keys); err != nil {
			return fmt.Errorf("%w: %w", source.where, err)
		}
		if c.Segment.Name == "" && source.segment.Name != "" {
			c.Segment = source.segment
			if namespace := values["K8S_POD_NAMESPACE"]; source.keys == annotationKeys && namespace != "" {
				c.Segment.Name = InNamespace(namespace, c.Segment.Name)
			}
		}
	}
	if c.Segment.Name != "" && c.Segment.Mode == "" {
		c.Segment.Mode = c.RawMode
	}
	return nil
}

// InNamespace returns the host's name of a namespace's segment. A namespace has no dots, and no capital
// letters, so a hash of long names is not one of another namespace.
func InNamespace(namespace, name string) string {
	full := namespace + "." + name
	if len(full) > maxName {
		return fmt.Sprintf("N%x", sha256.Sum256([]byte(full)))[:maxName-1]
	}
	return full
}

// nameFormat is also that of container IDs and networks.
var nameFormat = regexp.MustCompile(`^[a-zA-Z0-9][a-zA-Z0-9_.-]*$`)

// check names the source's keys in errors, and never shows the secret.
func (s Segment) check(k keys) error {
	switch {
	case s.Name == "" && s.Key != "":
		return fmt.Errorf("%s is missing: %s needs the segment's name", k.name, k.key)
	case s.Name != "" && s.Key == "":
		return fmt.Errorf("%s is missing: want the secret of segment %q", k.key, s.Name)
	case s.Name != "" && (len(s.Name) > maxName || !nameFormat.MatchString(s.Name)):
		return fmt.Errorf("%s %q: want a letter or digit, and up to %d of them, _, . and -", k.name, s.Name, maxName-1)
	case s.Key != "" && (len(s.Key) < minKey || len(s.Key) > maxKey || strings.ContainsFunc(s.Key, func(r rune) bool { return r <= ' ' || r > '~' })):
		return fmt.Errorf("%s: want %d to %d ASCII characters without blanks", k.key, minKey, maxKey)
	case s.Mode != "" && s.Mode != segment.Unicast && s.Mode != segment.Plain:
		return fmt.Errorf("%s %q: want %q or %q", k.mode, s.Mode, segment.Unicast, segment.Plain)
	}
	return nil
}
