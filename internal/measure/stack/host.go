package stack

import (
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"unicode"
)

// Host is the address and the user of an existing machine.
type Host struct {
	User    string // default: root
	Address string // name or IP address, without brackets
	Port    int    // default: 22
}

// ParseHost parses "ssh://user@address:port"; user and port are optional. It refuses a
// password, because reports would contain it.
func ParseHost(text string) (Host, error) {
	wrong := func(why string) (Host, error) {
		return Host{}, fmt.Errorf("host %q %s: want ssh://user@address:port", text, why)
	}
	if strings.ContainsFunc(text, func(r rune) bool { return r == ',' || r == ' ' || !unicode.IsPrint(r) }) {
		return wrong("has a comma, a space or a character that cannot be printed")
	}
	u, err := url.Parse(text)
	if err != nil {
		return wrong("is not an address")
	}
	if _, password := u.User.Password(); password {
		text = u.Redacted()
		return wrong("has a password")
	}
	switch {
	case u.Scheme != "ssh":
		return wrong("does not begin with ssh://")
	case u.Hostname() == "":
		return wrong("has no address")
	case u.Path != "" || u.RawQuery != "" || u.ForceQuery || strings.Contains(text, "#"):
		return wrong("continues after the port")
	}
	h := Host{User: "root", Address: u.Hostname(), Port: 22}
	if u.User != nil {
		h.User = u.User.Username()
	}
	if h.User == "" || strings.HasPrefix(h.User, "-") || strings.HasPrefix(h.Address, "-") {
		return wrong("has a user or address that is empty or begins with a dash")
	}
	if _, after, _ := strings.Cut(u.Host, h.Address); strings.HasSuffix(after, ":") {
		return wrong("has no port after the colon")
	}
	if u.Port() != "" {
		if h.Port, err = strconv.Atoi(u.Port()); err != nil || h.Port < 1 || h.Port > 65535 {
			return wrong("has a port that is not between 1 and 65535")
		}
	}
	return h, nil
}
