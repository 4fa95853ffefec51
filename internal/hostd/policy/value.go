package policy

import (
	"errors"
	"fmt"
	"math"
	"net/netip"
	"path"
	"strconv"
	"strings"
	"unicode"
)

// The parsers of single values. Their errors say what is wanted and what was
// found.

// Rate is in bit/s; 0: no limit. Its text is "1G", "100M", "64K", "1500": powers
// of 1000.
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

func parseRate(text string) (Rate, error) {
	digits, unit := text, uint64(1)
	for _, u := range rateUnits[:len(rateUnits)-1] {
		if before, ok := strings.CutSuffix(text, u.suffix); ok {
			digits, unit = before, u.bits
		}
	}
	n, err := strconv.ParseUint(digits, 10, 64)
	if err != nil || n > math.MaxUint64/unit {
		return 0, fmt.Errorf("want a rate in bit/s such as 1G, 100M or 64K, or 0 for no limit, got %q", text)
	}
	return Rate(n * unit), nil
}

// parseLabel accepts DNS labels in lower case (RFC 1123).
func parseLabel(text string) (string, error) {
	inner := func(r rune) bool { return (r < 'a' || r > 'z') && (r < '0' || r > '9') && r != '-' }
	if text == "" || len(text) > 63 || strings.ContainsFunc(text, inner) || strings.HasPrefix(text, "-") || strings.HasSuffix(text, "-") {
		return "", fmt.Errorf("want 1 to 63 of a-z, 0-9 and, inside, '-', got %q", text)
	}
	return text, nil
}

// parseInterface follows the kernel (dev_valid_name in net/core/dev.c).
func parseInterface(text string) (string, error) {
	invalid := func(r rune) bool { return r == '/' || r == ':' || unicode.IsSpace(r) || !unicode.IsPrint(r) }
	if text == "" || len(text) > 15 || text == "." || text == ".." || strings.ContainsFunc(text, invalid) {
		return "", fmt.Errorf("want the name of a network interface, 1 to 15 bytes without '/', ':' and white space, got %q", text)
	}
	return text, nil
}

// parsePort accepts the IDs of QEMU (id_wellformed in util/id.c).
func parsePort(text string) (string, error) {
	for i, r := range text {
		letter := 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z'
		if !letter && (i == 0 || (r < '0' || r > '9') && !strings.ContainsRune("-._", r)) {
			return "", fmt.Errorf("want the ID of a root port, a letter and then letters, digits, '-', '.' and '_', got %q", text)
		}
	}
	if text == "" {
		return "", errors.New("want the ID of a root port, such as rp1, got nothing")
	}
	return text, nil
}

func parsePath(text string) (string, error) {
	if !path.IsAbs(text) || strings.ContainsFunc(text, unicode.IsControl) {
		return "", fmt.Errorf("want an absolute path, got %q", text)
	}
	return text, nil
}

func parseListen(text string) (netip.AddrPort, error) {
	if text == "" {
		return netip.AddrPort{}, nil
	}
	a, err := netip.ParseAddrPort(text)
	if err != nil || a.Addr().IsUnspecified() {
		return netip.AddrPort{}, fmt.Errorf("want IP-ADDRESS:PORT, as the guests see it, such as 10.200.0.1:7443, got %q", text)
	}
	return a, nil
}

func parseHTTP(text string) (netip.AddrPort, error) {
	if text == "" || text == "off" {
		return netip.AddrPort{}, nil
	}
	a, err := netip.ParseAddrPort(text)
	if err != nil {
		return netip.AddrPort{}, fmt.Errorf("want IP-ADDRESS:PORT, such as 127.0.0.1:9477, or off, got %q", text)
	}
	return a, nil
}

func parseAddr(text string) (netip.Addr, error) {
	a, err := netip.ParseAddr(text)
	if err != nil || a.Is4In6() || a.Zone() != "" {
		return netip.Addr{}, fmt.Errorf("want an IP address, such as 10.201.0.8, got %q", text)
	}
	return a, nil
}

func parseAddrOrNone(text string) (netip.Addr, error) {
	if text == "" {
		return netip.Addr{}, nil
	}
	return parseAddr(text)
}

func parsePrefix(text string) (netip.Prefix, error) {
	p, err := netip.ParsePrefix(text)
	if err != nil || p.Addr().Is4In6() {
		return netip.Prefix{}, fmt.Errorf("want ADDRESS/PREFIX-LENGTH, such as 10.201.0.1/16, got %q", text)
	}
	return p, nil
}
