package netconf

import (
	"fmt"
	"net/netip"
	"path/filepath"
	"time"
)

// Defaults of the keys that all our plugins have.
const (
	DefaultCredentials = "/etc/unnest"
	DefaultWait        = 30 * time.Second
	// MaxWait is below the time that the kubelet gives to a whole ADD.
	MaxWait = 2 * time.Minute
)

// Host is what all our plugins are told of the host daemon, and of what it plugs:
//
//	"server"       "10.200.0.1:7443", the host daemon's address; required
//	"credentials"  directory with ca.crt, client.crt, client.key; default /etc/unnest
//	"wait"         how long the NIC may take to appear, "30s" by default, at most "2m"
//	"log"          true: one line per ADD with the duration of each step, to stderr
type Host struct {
	Server      netip.AddrPort `json:"-"`
	Credentials string         `json:"credentials"`
	Wait        time.Duration  `json:"-"`
	Log         bool           `json:"log"`

	RawServer string `json:"server"`
	RawWait   string `json:"wait"`
}

func (h *Host) complete() (err error) {
	if h.Server, err = server(h.RawServer); err != nil {
		return err
	}
	if h.Wait, err = wait(h.RawWait); err != nil {
		return err
	}
	if h.Credentials == "" {
		h.Credentials = DefaultCredentials
	}
	if !filepath.IsAbs(h.Credentials) {
		return fmt.Errorf("credentials %q: want an absolute path", h.Credentials)
	}
	return nil
}

func server(s string) (netip.AddrPort, error) {
	if s == "" {
		return netip.AddrPort{}, fmt.Errorf("server is missing: want the host daemon's ADDRESS:PORT, such as %q", "10.200.0.1:7443")
	}
	a, err := netip.ParseAddrPort(s)
	if err != nil || a.Port() == 0 || a.Addr().IsUnspecified() {
		return netip.AddrPort{}, fmt.Errorf("server %q: want IP-ADDRESS:PORT, such as %q", s, "10.200.0.1:7443")
	}
	return a, nil
}

func wait(s string) (time.Duration, error) {
	if s == "" {
		return DefaultWait, nil
	}
	d, err := time.ParseDuration(s)
	if err != nil || d <= 0 || d > MaxWait {
		return 0, fmt.Errorf("wait %q: want a duration above 0, at most %v, such as %q", s, MaxWait, "30s")
	}
	return d, nil
}
