package ports

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"unnest.io/unnest/internal/hostd/attachment"
	"unnest.io/unnest/internal/hostd/turns"
	"unnest.io/unnest/internal/netdev/link"
	"unnest.io/unnest/internal/netdev/ratelimit"
	"unnest.io/unnest/internal/netdev/tap"
)

// Delete deletes a port, with its limits and its guard. A port that does not exist is not an
// error. No VMM may use it: see tap.Remove. If its service addresses do not end, the port stays, on no bridge. It yields the turn between its steps.
func (p *Ports) Delete(turn *turns.Turn, name string) error {
	if err := p.EndServices(name); err != nil {
		return err
	}
	err := link.Delete(name)
	turn.Yield()
	return errors.Join(err, p.forget(turn, name))
}

// Cut takes a TAP off the network, with its limits and its guard, and deletes it unless a VMM
// has it: then it stays, marked as ended. If its service addresses do not end, it stays with its alias, on no bridge. Cut yields the turn between its steps.
func (p *Ports) Cut(turn *turns.Turn, name string) (left bool, err error) {
	if err := p.EndServices(name); err != nil {
		return true, err
	}
	left, err = tap.Remove(name)
	if left && err == nil {
		if err = link.SetAlias(name, attachment.EndedAlias); link.IsGone(err) { // closed meanwhile
			left, err = false, nil
		}
	}
	turn.Yield()
	return left, errors.Join(err, p.forget(turn, name))
}

// Retire deletes a port, or cuts it if a VMM has it. Then it leaves the name to others.
func (p *Ports) Retire(name string) error {
	l, _ := link.Find(name) // if there is none, its rules are left
	if !l.TAP {
		return p.Delete(nil, name)
	}
	left, err := p.Cut(nil, name)
	if left && err == nil {
		err = tap.Retire(name)
	}
	return err
}

// forget removes what a port without service addresses leaves behind.
func (p *Ports) forget(turn *turns.Turn, name string) error {
	err := ratelimit.Clear(name)
	turn.Yield()
	err = errors.Join(err, p.Policies.Disconnect(turn, name))
	turn.Yield()
	return errors.Join(err, p.Unguard(name))
}

// RetirePrefixed retires the ports of a guest that is gone, or whose VMM is not ours any more.
func (p *Ports) RetirePrefixed(prefixes ...string) error {
	names, err := portsWhere(func(l link.Link) bool { return IsPort(l.Name, prefixes...) })
	gone, failed := p.gone(prefixes)
	err = errors.Join(err, failed)
	for _, name := range append(names, gone...) {
		err = errors.Join(err, p.Retire(name))
	}
	return err
}

// DeleteGone deletes what is left of ports with the prefixes that are gone, as those are that went with their VMM. The caller makes none
// of these ports meanwhile.
func (p *Ports) DeleteGone(turn *turns.Turn, prefixes ...string) error {
	names, err := p.gone(prefixes)
	for _, name := range names {
		err = errors.Join(err, p.Delete(turn, name))
	}
	return err
}

// gone lists the ports with the prefixes that have a guard or service addresses, and no link.
func (p *Ports) gone(prefixes []string) (names []string, err error) {
	guarded, err := p.Guarded()
	for _, name := range slices.Concat(slices.Collect(maps.Keys(guarded)), p.services.ports()) {
		if !IsPort(name, prefixes...) || slices.Contains(names, name) {
			continue
		}
		if _, found := link.Find(name); link.IsGone(found) {
			names = append(names, name)
		}
	}
	return names, err
}

// Held returns a TAP with the prefix that exists because a process has its descriptor; ""
// if there is none. It does not see persistent TAPs.
func (p *Ports) Held(prefix string) (string, error) {
	links, err := link.List()
	if err != nil {
		return "", fmt.Errorf("list links: %w", err)
	}
	for _, l := range links {
		if l.TAP && !l.Persistent && IsPort(l.Name, prefix) {
			return l.Name, nil
		}
	}
	return "", nil
}

// Orphans lists our ports that have none of the prefixes.
func Orphans(known []string) ([]string, error) {
	return portsWhere(func(l link.Link) bool {
		return strings.HasPrefix(l.Alias, attachment.WarmAlias) && !IsPort(l.Name, known...)
	})
}

func portsWhere(match func(link.Link) bool) (names []string, err error) {
	links, err := link.List()
	if err != nil {
		return nil, fmt.Errorf("list links: %w", err)
	}
	for _, l := range links {
		if match(l) {
			names = append(names, l.Name)
		}
	}
	return names, nil
}

// IsPort reports whether a link's name is a prefix followed by a digit: the prefix of
// one guest may begin that of another.
func IsPort(name string, prefixes ...string) bool {
	return slices.ContainsFunc(prefixes, func(prefix string) bool {
		rest, ok := strings.CutPrefix(name, prefix)
		return ok && rest != "" && '0' <= rest[0] && rest[0] <= '9'
	})
}
