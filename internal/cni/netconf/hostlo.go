package netconf

import (
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strings"

	"github.com/containernetworking/cni/pkg/types"
)

// Modes of a segment: which fractions get a frame.
const (
	Unicast = "unicast" // that it is for
	Plain   = "plain"   // all, the sender too, as in the paper
)

// DefaultInterface is the endpoint's name in a pod whose interface another plugin
// has made.
const DefaultInterface = "hostlo0"

// Lengths in bytes that the host daemon takes.
const (
	maxName = 63
	minKey  = 16
	maxKey  = 128
)

// Hostlo is the configuration of the plugin hostlo. Beside CNI's own keys and
// Host's it has:
//
//	"segment"    name of the segment that the network's pods are fractions of
//	"key"        secret of the segment: who joins first sets it, the others must know it
//	"mode"       "unicast" or "plain"; default: the segment's, and of a new one the
//	             host's usual
//	"interface"  name of the endpoint in a pod to which a plugin before this one has
//	             given an interface; default "hostlo0". Without one, the endpoint has
//	             the name that the runtime wants
//
// A runtime that knows of segments gives each pod its own. Where more than one
// source names a segment, the first of these goes, with its key and mode, before
// those after it; a mode that it does not give is the configuration's:
//
//   - the capability "segment": {"name": …, "key": …, "mode": …} in runtimeConfig
//   - CNI_ARGS: UNNEST_SEGMENT=…;UNNEST_KEY=…;UNNEST_MODE=…
//   - the pod's annotations unnest.io/segment, unnest.io/segment-key and
//     unnest.io/segment-mode, by the capability
//     "io.kubernetes.cri.pod-annotations", which containerd knows
//   - the configuration
type Hostlo struct {
	types.PluginConf
	Host
	Segment   Segment `json:"-"` // of this pod; without a name: none
	Interface string  `json:"interface"`

	// Complete says that ValidAttachments is all there are. Without it the runtime
	// has not said which are valid.
	Complete bool `json:"-"`

	RawSegment string          `json:"segment"`
	RawKey     string          `json:"key"`
	RawMode    string          `json:"mode"`
	RawRuntime segments        `json:"runtimeConfig"`
	RawValid   json.RawMessage `json:"cni.dev/valid-attachments"`
}

// Segment says which segment a pod is a fraction of.
type Segment struct {
	Name string `json:"name"`
	Key  string `json:"key"`
	Mode string `json:"mode"` // "": whichever it has
}

// segments are the capabilities by which a runtime tells it.
type segments struct {
	Segment     Segment           `json:"segment"`
	Annotations map[string]string `json:"io.kubernetes.cri.pod-annotations"`
}

// ErrArgs is wrapped when CNI_ARGS is wrong.
var ErrArgs = errors.New("CNI_ARGS")

// The other sources, in errors.
var (
	errConfiguration = errors.New("network configuration")
	errRuntime       = errors.New("network configuration: runtimeConfig")
	errAnnotations   = errors.New("annotations of the pod")
)

// ParseHostlo reads the configuration from a plugin's standard input, and CNI_ARGS.
// An error names the key; it wraps ErrDecode when the input is not JSON of these
// types, ErrArgs when the arguments are wrong.
func ParseHostlo(stdin []byte, args string) (Hostlo, error) {
	var c Hostlo
	if err := json.Unmarshal(stdin, &c); err != nil {
		return Hostlo{}, fmt.Errorf("%w: %w", ErrDecode, err)
	}
	if err := c.Host.complete(); err != nil {
		return Hostlo{}, fmt.Errorf("network configuration: %w", err)
	}
	if c.Interface == "" {
		c.Interface = DefaultInterface
	}
	if !isInterfaceName(c.Interface) || c.Interface == "lo" {
		return Hostlo{}, fmt.Errorf("network configuration: interface %q: want the name of a network interface", c.Interface)
	}
	var err error
	if c.Segment, err = c.segment(args); err != nil {
		return Hostlo{}, err
	}
	if c.Complete, err = readAttachments(&c.PluginConf, c.RawValid); err != nil {
		return Hostlo{}, err
	}
	return c, nil
}

// segment chooses among the sources.
func (c *Hostlo) segment(args string) (chosen Segment, err error) {
	named, err := segmentOfArgs(args)
	if err != nil {
		return chosen, err
	}
	const domain = "unnest.io/segment"
	notes := c.RawRuntime.Annotations
	for _, source := range []struct {
		where error
		words [3]string
		of    Segment
	}{
		{errRuntime, [3]string{"segment.name", "segment.key", "segment.mode"}, c.RawRuntime.Segment},
		{ErrArgs, argNames, named},
		{errAnnotations, [3]string{domain, domain + "-key", domain + "-mode"},
			Segment{notes[domain], notes[domain+"-key"], notes[domain+"-mode"]}},
		{errConfiguration, [3]string{"segment", "key", "mode"}, Segment{c.RawSegment, c.RawKey, c.RawMode}},
	} {
		if err := source.of.check(source.words); err != nil {
			return Segment{}, fmt.Errorf("%w: %w", source.where, err)
		}
		if chosen.Name == "" && source.of.Name != "" {
			chosen = source.of
		}
	}
	if chosen.Name != "" && chosen.Mode == "" {
		chosen.Mode = c.RawMode
	}
	return chosen, nil
}

// nameFormat is that of container IDs and networks as well.
var nameFormat = regexp.MustCompile(`^[a-zA-Z0-9][a-zA-Z0-9_.-]*$`)

// check tells what is wrong by the source's words for name, key and mode.
func (s Segment) check(words [3]string) error {
	name, key, mode := words[0], words[1], words[2]
	switch {
	case s.Name == "" && s.Key != "":
		return fmt.Errorf("%s is missing: a key is a segment's", name)
	case s.Name != "" && s.Key == "":
		return fmt.Errorf("%s is missing: want the secret that the fractions of segment %q have in common", key, s.Name)
	case s.Name != "" && (len(s.Name) > maxName || !nameFormat.MatchString(s.Name)):
		return fmt.Errorf("%s %q: want a letter or digit, and up to %d of them, _, . and -", name, s.Name, maxName-1)
	case s.Key != "" && (len(s.Key) < minKey || len(s.Key) > maxKey || strings.ContainsFunc(s.Key, isNoKey)):
		return fmt.Errorf("%s: want %d to %d characters of ASCII without blanks", key, minKey, maxKey) // a secret is not shown
	case s.Mode != "" && s.Mode != Unicast && s.Mode != Plain:
		return fmt.Errorf("%s %q: want %q or %q", mode, s.Mode, Unicast, Plain)
	}
	return nil
}

func isNoKey(r rune) bool { return r <= ' ' || r > '~' }

var argNames = [3]string{"UNNEST_SEGMENT", "UNNEST_KEY", "UNNEST_MODE"}

// segmentOfArgs reads CNI_ARGS. Arguments that are not ours are others', whether
// or not they want them ignored.
func segmentOfArgs(args string) (s Segment, err error) {
	if args == "" {
		return s, nil
	}
	for _, pair := range strings.Split(args, ";") {
		key, value, ok := strings.Cut(pair, "=")
		if !ok {
			return s, fmt.Errorf("%w: %q: want KEY=VALUE;KEY=VALUE", ErrArgs, pair)
		}
		for i, field := range []*string{&s.Name, &s.Key, &s.Mode} {
			if key == argNames[i] {
				*field = value
			}
		}
	}
	return s, nil
}
