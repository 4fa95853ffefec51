package segments

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"

	"unnest.io/unnest/internal/hostapi/segment"
	"unnest.io/unnest/internal/hostd/attachment"
	"unnest.io/unnest/internal/hostd/hotplug"
	"unnest.io/unnest/internal/hostd/quota"
)

// label is what the alias of a segment's TAP records for the next daemon: everything
// but the endpoints.
type label struct {
	tenant, pod, network string
	mode                 string
	digest               [sha256.Size]byte // of the key
	generation           uint32            // of the members that were announced last
}

const labelPrefix = "segment:"

// alias returns "segment:MODE;TENANT;POD;NETWORK;DIGEST;GENERATION", at most 253 bytes.
func (l label) alias() string {
	return labelPrefix + strings.Join([]string{
		l.mode[:1], l.tenant, l.pod, l.network, base64.RawURLEncoding.EncodeToString(l.digest[:]),
		strconv.FormatUint(uint64(l.generation), 36),
	}, ";")
}

// parseLabel decodes an alias; false when alias did not write it.
func parseLabel(alias string) (l label, ok bool) {
	rest, ours := strings.CutPrefix(alias, labelPrefix)
	fields := strings.Split(rest, ";")
	if !ours || len(fields) != 6 {
		return label{}, false
	}
	l = label{mode: modes[fields[0]], tenant: fields[1], pod: fields[2], network: fields[3]}
	digest, err := base64.RawURLEncoding.DecodeString(fields[4])
	generation, err2 := strconv.ParseUint(fields[5], 36, 32)
	if err != nil || err2 != nil || len(digest) != len(l.digest) || l.mode == "" {
		return label{}, false
	}
	l.digest, l.generation = [sha256.Size]byte(digest), uint32(generation)
	return l, l.alias() == alias
}

var modes = map[string]string{quota.SegmentUnicast[:1]: quota.SegmentUnicast, quota.SegmentPlain[:1]: quota.SegmentPlain}

// id distinguishes the segments of a host.
func (l label) id() string { return segmentID(l.tenant, l.pod) }

func segmentID(tenant, pod string) string { return tenant + "/" + pod }

// TAP returns the name of the TAP of a pod's segment.
func TAP(tenant, pod string) string { return tapName(segmentID(tenant, pod)) }

// tapName returns "hlo" and 48 bits of a digest, 15 bytes.
func tapName(id string) string {
	sum := sha256.Sum256([]byte(id))
	return "hlo" + hex.EncodeToString(sum[:6])
}

// Digest returns what is kept of a pod's key. Two pods with the same key have
// different digests.
func Digest(tenant, pod, key string) [sha256.Size]byte {
	return sha256.Sum256([]byte(segmentID(tenant, pod) + "\x00" + key))
}

// endpointLabel is what an alternative name of the segment's TAP records about one
// endpoint. The name exists as long as the endpoint has a queue.
type endpointLabel struct {
	port     string // the name that the TAP of a NIC in the slot would have
	fraction segment.Fraction
	ownMAC   bool           // the NIC has the slot's MAC, not the fraction's
	key      attachment.Key // the attachment; zero while the endpoint joins or leaves
}

// maxName is the longest alternative name that the kernel keeps (ALTIFNAMSIZ in
// include/uapi/linux/if.h, without the terminating NUL).
const maxName = 127

// String returns "PORT.FRACTION", then "o" if the MAC is the slot's own, and
// ".CONTAINER@INTERFACE" if there is a key: "u1n3-1.2.0123abcd@eth0". No container
// ID has an @.
func (l endpointLabel) String() string {
	name := l.port + "." + strconv.Itoa(int(l.fraction))
	if l.ownMAC {
		name += "o"
	}
	if l.key != (attachment.Key{}) {
		name += "." + l.key.Owner + "@" + l.key.Name
	}
	return name
}

// parseEndpointLabel decodes an alternative name; false when String did not write it.
func parseEndpointLabel(name string) (l endpointLabel, ok bool) {
	port, rest, _ := strings.Cut(name, ".")
	number, text, keyed := strings.Cut(rest, ".")
	l.port = port
	number, l.ownMAC = strings.CutSuffix(number, "o")
	f, err := strconv.ParseUint(number, 10, 8)
	l.fraction = segment.Fraction(f)
	if keyed {
		l.key.Kind = attachment.Endpoint
		l.key.Owner, l.key.Name, _ = strings.Cut(text, "@")
	}
	complete := !keyed || l.key.Owner != "" && l.key.Name != ""
	return l, err == nil && l.fraction.Valid() && port != "" && complete && l.String() == name
}

// endpointLabels decodes the names of a segment's TAP, by port. An endpoint that was
// joining or leaving may have a name with a key and one without: the latter counts.
func endpointLabels(names []string) (all map[string]endpointLabel) {
	all = map[string]endpointLabel{}
	for _, name := range names {
		l, ok := parseEndpointLabel(name)
		if _, twice := all[l.port]; ok && (!twice || l.key == attachment.Key{}) {
			all[l.port] = l
		}
	}
	return all
}

// CheckKey returns an error, which wraps attachment.ErrTooLong, when the name of an
// endpoint would be longer than the kernel keeps.
func CheckKey(key attachment.Key) error {
	longest := endpointLabel{port: strings.Repeat("u", 15), fraction: segment.MaxFractions, ownMAC: true, key: key}
	if n := len(longest.String()); n > maxName {
		used := len(key.Owner) + len(key.Name)
		return fmt.Errorf("%w: container ID and interface have %d bytes: a segment takes at most %d",
			attachment.ErrTooLong, used, used-n+maxName)
	}
	return nil
}

// Observe lists the endpoints that the alias and the alternative names of a TAP
// record, as TAPs of their own. A TAP that is not a segment's has none.
func Observe(alias string, names []string) (taps []hotplug.ObservedTAP) {
	l, ok := parseLabel(alias)
	if !ok {
		return nil
	}
	for _, e := range endpointLabels(names) {
		seen := hotplug.ObservedTAP{Name: e.port, Key: attachment.Key{Kind: attachment.Endpoint}}
		if e.key != (attachment.Key{}) {
			seen.Key, seen.Record = e.key, e.record(l)
		}
		taps = append(taps, seen)
	}
	return taps
}

func (l endpointLabel) record(of label) attachment.Record {
	return attachment.Record{Pod: of.pod, Network: of.network, Fraction: l.fraction, OwnMAC: l.ownMAC}
}
