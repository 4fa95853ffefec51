package quota

import (
	"errors"
	"fmt"
	"math"
	"net/netip"
	"path"
	"regexp"
	"strconv"
	"strings"
	"unicode"

	"unnest.io/unnest/internal/yamldoc"
)

func word(want string, valid func(string) bool) func(string) (string, error) {
	return yamldoc.Parser(want, func(text string) (string, error) { return text, nil }, valid)
}

var (
	// parseLabel accepts DNS labels in lower case (RFC 1123).
	parseLabel = word("1 to 63 of a-z, 0-9 and, inside, '-'",
		regexp.MustCompile(`^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$`).MatchString)
	// parseNode accepts DNS names in lower case (RFC 1123), as Kubernetes does.
	parseNode = word("the name of a node, 1 to 253 of a-z, 0-9 and, inside, '-' and '.'",
		func(n string) bool { return len(n) <= 253 && nodeName.MatchString(n) })
	// parsePort accepts the IDs of QEMU (id_wellformed in util/id.c).
	parsePort = word("the ID of a root port, a letter and then letters, digits, '-', '.' and '_'",
		regexp.MustCompile(`^[a-zA-Z][-._a-zA-Z0-9]*$`).MatchString)
	// parseMAC accepts unicast addresses.
	parseMAC = word("a MAC address, such as 52:54:00:12:34:56",
		regexp.MustCompile(`^[0-9a-fA-F][02468aceACE](:[0-9a-fA-F]{2}){5}$`).MatchString)
	// parseMACs accepts the first bytes of unicast addresses that are not the daemon's own.
	parseMACs = word("the first one to six bytes of a MAC address, such as 02:42, in lower case, and not 0a, with which those of NICs begin",
		func(m string) bool { return macBytes.MatchString(m) && !strings.HasPrefix(m, "0a") })
	parseInterface     = word("the name of a network interface, 1 to 15 bytes without '/', ':' and white space", isInterface)
	parsePath          = word("an absolute path", isPath)
	parseLogLevel      = word(LogInfo+" or "+LogDebug, func(l string) bool { return l == LogInfo || l == LogDebug })
	parseNetworkPolicy = word(PolicyOptional+" or "+PolicyRequired, func(p string) bool { return p == PolicyOptional || p == PolicyRequired })
	parseCredentials   = word(CredentialsVMM, func(c string) bool { return c == CredentialsVMM })
	parseSegmentMode   = word(SegmentUnicast+" or "+SegmentPlain, func(m string) bool { return m == SegmentUnicast || m == SegmentPlain })

	parseAddr = yamldoc.Parser("an IP address, such as 10.201.0.8", netip.ParseAddr,
		func(a netip.Addr) bool { return !a.Is4In6() && a.Zone() == "" })
	parsePrefix = yamldoc.Parser("ADDRESS/PREFIX-LENGTH, such as 10.201.0.1/16", netip.ParsePrefix,
		func(p netip.Prefix) bool { return !p.Addr().Is4In6() })
	parseListen = yamldoc.Or(yamldoc.Parser("IP-ADDRESS:PORT, as the guests see it, such as 10.200.0.1:7443", netip.ParseAddrPort,
		func(a netip.AddrPort) bool { return !a.Addr().IsUnspecified() }), "")
	parseHTTP = yamldoc.Or(yamldoc.Parser("IP-ADDRESS:PORT, such as 127.0.0.1:9477, or off", netip.ParseAddrPort,
		netip.AddrPort.IsValid), "", "off")
	parseHostPort = yamldoc.Parser("tcp/PORT, udp/PORT, any or none", func(text string) (HostPort, error) { return HostPort(text), nil },
		func(p HostPort) bool { _, _, ok := p.Port(); return ok || p == AnyPort || p == NoPort })
	parseRate = yamldoc.Parser("a rate in bit/s such as 1G, 100M or 64K, or 0 for no limit", readRate,
		func(Rate) bool { return true })
)

// macBytes are those of unicast addresses.
var macBytes = regexp.MustCompile(`^[0-9a-f][02468ace](:[0-9a-f]{2}){0,5}$`)

var nodeName = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*$`)

// isInterface follows the kernel (dev_valid_name in net/core/dev.c).
func isInterface(name string) bool {
	invalid := func(r rune) bool { return r == '/' || r == ':' || unicode.IsSpace(r) || !unicode.IsPrint(r) }
	return name != "" && len(name) <= 15 && name != "." && name != ".." && !strings.ContainsFunc(name, invalid)
}

func isPath(p string) bool { return path.IsAbs(p) && !strings.ContainsFunc(p, unicode.IsControl) }

// parseDirectory accepts a canonical absolute path, so that two can be compared. It
// excludes commas, which virtiofsd takes for the end of an option.
func parseDirectory(text string) (string, error) {
	if _, err := parsePath(text); err != nil {
		return "", err
	}
	if path.Clean(text) != text || text == "/" || strings.Contains(text, ",") {
		return "", fmt.Errorf("want the absolute path of a directory, without '.', '..', '//', a comma and a '/' at its end, got %q", text)
	}
	return text, nil
}

// ParseSpan accepts SpanHost. For "hosts" the error wraps ErrSpan.
func ParseSpan(text string) (string, error) {
	switch text {
	case SpanHost:
		return text, nil
	case "hosts":
		return "", fmt.Errorf("%w: want host, got hosts: a segment is a device of one physical host, which has to run all VMs of its pod (Bacou et al. 2019, §5.3.1)", ErrSpan)
	}
	return "", fmt.Errorf("want host, got %q", text)
}

// Rate is in bit/s; 0: no limit. Its text is "1G", "100M", "64K" or "1500", with
// powers of 1000.
type Rate uint64

var rateUnits = []struct {
	suffix string
	bits   uint64
}{{"G", 1e9}, {"M", 1e6}, {"K", 1e3}, {"", 1}}

// MarshalText writes the rate in the largest unit that leaves no fraction.
func (r Rate) MarshalText() ([]byte, error) {
	for _, u := range rateUnits {
		if uint64(r)%u.bits == 0 && r > 0 {
			return fmt.Appendf(nil, "%d%s", uint64(r)/u.bits, u.suffix), nil
		}
	}
	return []byte("0"), nil
}

func readRate(text string) (Rate, error) {
	for _, u := range rateUnits {
		digits, ok := strings.CutSuffix(text, u.suffix)
		if !ok {
			continue
		}
		n, err := strconv.ParseUint(digits, 10, 64)
		if err != nil || n > math.MaxUint64/u.bits {
			break
		}
		return Rate(n * u.bits), nil
	}
	return 0, errors.New("not a rate")
}
