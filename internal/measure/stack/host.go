package stack

import (
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"unicode"
)

// Host is a machine that is there already, and how to log in to it.
type Host struct {
	User    string // root unless the text names one
	Address string // name or IP address, without brackets
	Port    int    // 22 unless the text names one
}

// ParseHost reads "ssh://user@address:port"; user and port may be left out. A
// password is refused, since it would stand in every report.
func ParseHost(text string) (Host, error) {
	wrong := func(why string) (Host, error) {
		return Host{}, fmt.Errorf("host %q: %s: write it as ssh://user@address:port", text, why)
	}
	if strings.ContainsFunc(text, func(r rune) bool { return r == ',' || r == ' ' || !unicode.IsPrint(r) }) {
		return wrong("it has a comma, a space or a character that cannot be printed")
	}
	u, err := url.Parse(text)
	if err != nil {
		return wrong("it is no address")
	}
	if _, password := u.User.Password(); password {
		text = u.Redacted()
		return wrong("it has a password")
	}
	switch {
	case u.Scheme != "ssh":
		return wrong("it does not begin with ssh://")
	case u.Hostname() == "":
		return wrong("it has no address")
	case u.Path != "" || u.RawQuery != "" || u.ForceQuery || strings.Contains(text, "#"):
		return wrong("it goes on after the port")
	}
	h := Host{User: "root", Address: u.Hostname(), Port: 22}
	if u.User != nil {
		h.User = u.User.Username()
	}
	if h.User == "" || strings.HasPrefix(h.User, "-") || strings.HasPrefix(h.Address, "-") {
		return wrong("user or address is empty or begins with a dash")
	}
	if _, after, _ := strings.Cut(u.Host, h.Address); strings.HasSuffix(after, ":") {
		return wrong("it has no port after the colon")
	}
	if u.Port() != "" {
		if h.Port, err = strconv.Atoi(u.Port()); err != nil || h.Port < 1 || h.Port > 65535 {
			return wrong("its port is not between 1 and 65535")
		}
	}
	return h, nil
}
