package bridge

import (
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

type setting struct {
	file, value string
	keep        func(old int) bool // nil: never
}

// sysctls returns the settings of the namespace that forward.
func sysctls(networks []Network) (s []setting) {
	has := func(is func(netip.Addr) bool) bool {
		return slices.ContainsFunc(networks, func(n Network) bool {
			return slices.ContainsFunc(n.Gateways, func(p netip.Prefix) bool { return is(p.Addr()) })
		})
	}
	if has(netip.Addr.Is4) {
		s = append(s, setting{file: "net/ipv4/ip_forward", value: "1"})
	}
	if has(netip.Addr.Is6) {
		s = append(s, setting{file: "net/ipv6/conf/all/forwarding", value: "1"})
	}
	return s
}

// undo holds the functions that undo the steps so far.
type undo []func() error

func (u *undo) add(what string, f func() error) {
	*u = append(*u, func() error {
		if err := f(); err != nil {
			return fmt.Errorf("undo %s: %w", what, err)
		}
		return nil
	})
}

func (u *undo) run() error {
	var errs []error
	for _, f := range slices.Backward(*u) {
		errs = append(errs, f())
	}
	return errors.Join(errs...)
}

// sysctls applies settings, except those that the kernel does not have.
func (u *undo) sysctls(settings []setting) error {
	for _, s := range settings {
		path := filepath.Join("/proc/sys", s.file)
		old, err := os.ReadFile(path)
		was := strings.TrimSpace(string(old))
		if errors.Is(err, fs.ErrNotExist) || err == nil && was == s.value {
			continue
		}
		if n, isNumber := strconv.Atoi(was); isNumber == nil && s.keep != nil && s.keep(n) {
			continue
		}
		if err == nil {
			err = os.WriteFile(path, []byte(s.value), 0)
		}
		if err != nil {
			return fmt.Errorf("set %s: %w", s.file, err)
		}
		u.add("set "+s.file, func() error { return os.WriteFile(path, old, 0) })
	}
	return nil
}
