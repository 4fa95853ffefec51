package daemon

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"

	"unnest/internal/hostapi/segment"
	"unnest/internal/hostd/hotplug"
	"unnest/internal/hostd/policy"
)

// title is what is known of a segment beside its endpoints. The alias of its TAP
// says it, so that another daemon can go on from there.
type title struct {
	tenant, pod, network string
	mode                 string
	digest               [sha256.Size]byte // of the key
	generation           uint32            // of the members, the last that was announced
}

const titlePrefix = "segment:"

// alias gives "segment:MODE;TENANT;POD;NETWORK;DIGEST;GENERATION", at most 253 bytes.
func (t title) alias() string {
	return titlePrefix + strings.Join([]string{
		t.mode[:1], t.tenant, t.pod, t.network, base64.RawURLEncoding.EncodeToString(t.digest[:]),
		strconv.FormatUint(uint64(t.generation), 36),
	}, ";")
}

// parseTitle reads an alias; false when it is not one that alias gives.
func parseTitle(alias string) (t title, ok bool) {
	rest, ours := strings.CutPrefix(alias, titlePrefix)
	fields := strings.Split(rest, ";")
	if !ours || len(fields) != 6 {
		return title{}, false
	}
	t = title{mode: segmentModes[fields[0]], tenant: fields[1], pod: fields[2], network: fields[3]}
	digest, err := base64.RawURLEncoding.DecodeString(fields[4])
	generation, err2 := strconv.ParseUint(fields[5], 36, 32)
	if err != nil || err2 != nil || len(digest) != len(t.digest) || t.mode == "" {
		return title{}, false
	}
	t.digest, t.generation = [sha256.Size]byte(digest), uint32(generation)
	return t, t.alias() == alias
}

var segmentModes = map[string]string{policy.SegmentUnicast[:1]: policy.SegmentUnicast, policy.SegmentPlain[:1]: policy.SegmentPlain}

// id tells a segment from all others of the host.
func (t title) id() string { return segmentID(t.tenant, t.pod) }

func segmentID(tenant, pod string) string { return tenant + "/" + pod }

// segmentTAP is the name of a segment's TAP: "hlo" and 48 bits of a digest, 15 bytes.
func segmentTAP(id string) string {
	sum := sha256.Sum256([]byte(id))
	return "hlo" + hex.EncodeToString(sum[:6])
}

// keyDigest is what is kept of a segment's key: that of another segment with the
// same key differs.
func keyDigest(id, key string) [sha256.Size]byte { return sha256.Sum256([]byte(id + "\x00" + key)) }

// ticket is what is known of an endpoint. An alternative name of the segment's TAP
// says it, which is there as long as the endpoint has a queue.
type ticket struct {
	port     string // what would be the name of the TAP of another NIC in the slot
	fraction segment.Fraction
	ownMAC   bool        // the NIC has the slot's MAC, not the fraction's
	key      hotplug.Key // the attachment; zero: it is given up, or not finished
}

// maxName is the most that the kernel keeps of an alternative name (ALTIFNAMSIZ in
// include/uapi/linux/if.h, without the end).
const maxName = 127

// String gives "PORT.FRACTION", behind that an o if the MAC is the slot's own, and
// ".CONTAINER@INTERFACE" if there is a key: "u1n3-1.2.0123abcd@eth0". No container
// ID has an @.
func (t ticket) String() string {
	name := t.port + "." + strconv.Itoa(int(t.fraction))
	if t.ownMAC {
		name += "o"
	}
	if t.key != (hotplug.Key{}) {
		name += "." + t.key.ContainerID + "@" + t.key.Interface
	}
	return name
}

// parseTicket reads an alternative name; false when it is not one that String gives.
func parseTicket(name string) (t ticket, ok bool) {
	port, rest, _ := strings.Cut(name, ".")
	number, key, _ := strings.Cut(rest, ".")
	t.port = port
	number, t.ownMAC = strings.CutSuffix(number, "o")
	f, err := strconv.ParseUint(number, 10, 8)
	t.fraction = segment.Fraction(f)
	t.key.ContainerID, t.key.Interface, _ = strings.Cut(key, "@")
	complete := (t.key.ContainerID == "") == (t.key.Interface == "")
	return t, err == nil && t.fraction.Valid() && port != "" && complete && t.String() == name
}

// tickets reads the names of a segment's TAP. Of one that was being given up it is
// the ticket without a key that counts.
func tickets(names []string) (all map[string]ticket) {
	all = map[string]ticket{}
	for _, name := range names {
		t, ok := parseTicket(name)
		if _, twice := all[t.port]; ok && (!twice || t.key == hotplug.Key{}) {
			all[t.port] = t
		}
	}
	return all
}

// checkTicket returns an error when an endpoint's names would be too long.
func checkTicket(key hotplug.Key, w wanted) error {
	longest := ticket{port: strings.Repeat("u", 15), fraction: segment.MaxFractions, ownMAC: true, key: key}
	if n := len(longest.String()); n > maxName {
		return fmt.Errorf("%w: container ID and interface have %d bytes: a segment takes at most %d",
			errOwner, len(key.ContainerID)+len(key.Interface), len(key.ContainerID)+len(key.Interface)-n+maxName)
	}
	return checkOwner(endpointKey(key), note{pod: w.pod, network: w.network, fraction: segment.MaxFractions, ownMAC: true})
}

// endpointMark begins the container ID of an endpoint's attachment where NICs have
// theirs: a container's interface may have both. No guest can ask for it.
const endpointMark = "hostlo@"

func endpointKey(key hotplug.Key) hotplug.Key {
	return hotplug.Key{ContainerID: endpointMark + key.ContainerID, Interface: key.Interface}
}

// plainKey is the attachment as the guest calls it, and whether it is an endpoint's.
func plainKey(key hotplug.Key) (hotplug.Key, bool) {
	container, endpoint := strings.CutPrefix(key.ContainerID, endpointMark)
	return hotplug.Key{ContainerID: container, Interface: key.Interface}, endpoint
}
