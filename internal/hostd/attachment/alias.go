package attachment

import (
	"errors"
	"fmt"
	"net/netip"
	"strconv"
	"strings"

	"unnest.io/unnest/internal/hostapi/segment"
	"unnest.io/unnest/internal/hostd/quota"
)

// WarmAlias is the alias of a TAP that belongs to no attachment. It also begins the
// alias of every TAP that does.
const WarmAlias = "unnest:"

// EndedAlias is the alias of a TAP that was taken off the network, but that a VMM still has.
// It names no attachment.
const EndedAlias = WarmAlias + "ended"

// MaxAlias is the longest alias that the kernel keeps, in bytes (IFALIASZ in
// include/uapi/linux/if.h, without the terminating NUL).
const MaxAlias = 255

// ErrTooLong is wrapped when an attachment does not fit into an alias.
var ErrTooLong = errors.New("container ID, names, addresses and bandwidth are too long together")

// Alias returns the alias of an attachment's TAP, such as
// "unnest:c1/eth0 n=pods,b=br0,m=1500,a=10.201.0.9/16".
func Alias(k Key, r Record) string {
	alias := WarmAlias + k.Owner + "/" + k.Name
	switch {
	case k.Kind == Trunk:
		return alias + " trunk" // for people who read aliases
	case r.IsZero():
		return alias
	}
	if full := alias + " " + r.text(true); r.Since == 0 || len(full) <= MaxAlias {
		return full
	}
	r.Since = 0 // the operator can do without
	return alias + " " + r.text(true)
}

// Check returns an error unless the alias of an attachment can be written and read
// back. The error wraps ErrTooLong when only the length is wrong.
func Check(k Key, r Record) error {
	if err := k.Validate(); err != nil {
		return err
	}
	for _, s := range []string{r.Network, r.Bridge, r.Pod} {
		if !printable(s) || strings.Contains(s, ",") {
			return fmt.Errorf("attachment %q: %q: want printable ASCII without blank and comma", k, s)
		}
	}
	return checkLength(k, r)
}

// checkLength checks what is written into an alias: the names of an endpoint and the
// ID of a volume have limits of their own.
func checkLength(k Key, r Record) error {
	if n := len(Alias(k, r)); k.Kind == NIC && n > MaxAlias {
		return fmt.Errorf("attachment %.80q: %w: %d bytes of at most %d; shorten the names of network and pod, or request no bandwidth", k, ErrTooLong, n, MaxAlias)
	}
	return nil
}

// ParseAlias decodes an alias. It returns false for an alias that Alias did not
// write, such as WarmAlias. Fields of a newer daemon are ignored.
func ParseAlias(alias string) (k Key, r Record, ok bool) {
	rest, ours := strings.CutPrefix(alias, WarmAlias)
	name, fields, recorded := strings.Cut(rest, " ")
	k.Owner, k.Name, _ = strings.Cut(name, "/")
	if !ours || k.Validate() != nil || recorded && (fields == "" || !printable(fields)) || len(alias) > MaxAlias {
		return Key{}, Record{}, false
	}
	if k.Owner == TrunkKey.Owner {
		k.Kind = Trunk
		return k, Record{}, k == TrunkKey
	}
	r, err := parseRecord(fields)
	return k, r, err == nil
}

// String returns the fields that are set, such as "n=pods,b=br0,m=1500".
func (r Record) String() string { return r.text(false) }

// text encodes the record. With full it also writes the fields that every NIC has and
// that are empty here.
func (r Record) text(full bool) string {
	var parts []string
	field := func(name, value string, set bool) {
		if set {
			parts = append(parts, name+"="+value)
		}
	}
	field("s", r.Pod, r.Pod != "")
	field("f", strconv.Itoa(int(r.Fraction)), r.Fraction != 0)
	field("n", r.Network, full || r.Network != "")
	field("b", r.Bridge, full || r.Bridge != "")
	field("m", strconv.Itoa(r.MTU), full || r.MTU != 0)
	for _, a := range r.Addresses {
		field("a", a.String(), true)
	}
	for _, a := range r.Services {
		field("v", a.String(), true)
	}
	field("t", strconv.FormatInt(r.Since, 36), r.Since != 0)
	field("h", r.MAC, r.MAC != "")
	if r.DHCP {
		field("d", "1", true)
	}
	if b := r.Bandwidth; b != (quota.Bandwidth{}) {
		field("l", fmt.Sprintf("%d:%d:%d:%d", b.IngressRate, b.IngressBurst, b.EgressRate, b.EgressBurst), true)
	}
	if r.OwnMAC {
		field("o", "1", true)
	}
	if short, ok := shortUID(r.PodUID); ok {
		field("u", short, true)
	} else {
		field("U", r.PodUID, r.PodUID != "")
	}
	return strings.Join(parts, ",")
}

func parseRecord(text string) (r Record, err error) {
	for part := range strings.SplitSeq(text, ",") {
		name, value, _ := strings.Cut(part, "=")
		switch name {
		case "n":
			r.Network = value
		case "t":
			r.Since, err = strconv.ParseInt(value, 36, 64)
		case "b":
			r.Bridge = value
		case "m":
			r.MTU, err = strconv.Atoi(value)
		case "a":
			var a netip.Prefix
			a, err = netip.ParsePrefix(value)
			r.Addresses = append(r.Addresses, a)
		case "v":
			var a netip.Addr
			a, err = netip.ParseAddr(value)
			r.Services = append(r.Services, a)
		case "h":
			r.MAC = value
		case "d":
			r.DHCP = true
		case "s":
			r.Pod = value
		case "f":
			var f uint64
			f, err = strconv.ParseUint(value, 10, 8)
			r.Fraction = segment.Fraction(f)
		case "o":
			r.OwnMAC = true
		case "u":
			r.PodUID, err = longUID(value)
		case "U":
			r.PodUID = value
		case "l":
			b := &r.Bandwidth
			_, err = fmt.Sscanf(value, "%d:%d:%d:%d", &b.IngressRate, &b.IngressBurst, &b.EgressRate, &b.EgressBurst)
		}
		if err != nil {
			return Record{}, fmt.Errorf("read record %q: %s: %w", text, part, err)
		}
	}
	return r, nil
}
