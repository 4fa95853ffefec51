package segments

import (
	"fmt"
	"os"
	"time"

	"unnest.io/unnest/internal/hostapi/segment"
	"unnest.io/unnest/internal/netdev/link"
	"unnest.io/unnest/internal/netdev/reflector"
)

// loopback is a segment's TAP: the reflector on it, and its names.
type loopback interface {
	Join(segment.Fraction) (*os.File, error)
	Leave(segment.Fraction) error
	RestoreOffloads() error
	Announce(segment.Membership) error
	Silent(after time.Duration) (segment.Set, error)
	Members() segment.Set
	Counters() (map[segment.Fraction]reflector.Counters, error)
	Close() error
	Delete() error

	setAlias(string) error
	addName(string) error
	// deleteName succeeds when the name does not exist.
	deleteName(string) error
	// gone reports whether somebody has deleted the TAP.
	gone() bool
}

// tapLoopback is one in the network namespace of the process.
type tapLoopback struct {
	*reflector.Segment
	name string
}

func createLoopback(o reflector.Options) (loopback, error) {
	s, err := reflector.Create(o)
	if err != nil {
		return nil, err
	}
	return tapLoopback{s, o.Name}, nil
}

func recoverLoopback(o reflector.Options, holders map[int]segment.Fraction) (loopback, error) {
	s, err := reflector.Recover(o, holders)
	if err != nil {
		return nil, err
	}
	return tapLoopback{s, o.Name}, nil
}

func (l tapLoopback) setAlias(alias string) error {
	return l.changed("set alias of", link.SetAlias(l.name, alias))
}

func (l tapLoopback) addName(name string) error {
	return l.changed("add name "+name+" to", link.AddAltName(l.name, name))
}

func (l tapLoopback) deleteName(name string) error {
	return l.changed("delete name "+name+" of", link.DeleteAltName(l.name, name))
}

// changed says what of the TAP's link could not be changed.
func (l tapLoopback) changed(what string, err error) error {
	if err != nil {
		return fmt.Errorf("%s %s: %w", what, l.name, err)
	}
	return nil
}

func (l tapLoopback) gone() bool {
	_, err := link.Find(l.name)
	return link.IsGone(err)
}
