package netconf

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"

	"github.com/containernetworking/cni/pkg/types"
)

// Release is the part of a configuration of any of our plugins that DEL, GC and STATUS need to give
// attachments back. A DEL must succeed even if the configuration has got a mistake since the ADD:
// a value that cannot be read counts as missing, and no other key is read.
type Release struct {
	Base             // Name, CNIVersion, Server, Credentials, PrevResult
	Chained   bool   // there is a prevResult, readable or not
	IPAM      IPAM   // its type, "" if unknown
	Interface string // hostlo's

	// Complete means that ValidAttachments are all valid attachments. Otherwise the
	// runtime has not said which are valid.
	Complete bool

	// ServerError is the reason why Server is not valid.
	ServerError error
}

// ReadRelease reads the standard input of a DEL, GC or STATUS.
func ReadRelease(stdin []byte) Release {
	var raw struct {
		Name, CNIVersion, Server, Span, Credentials, Interface, PrevResult json.RawMessage
		IPAM                                                               struct{ Type json.RawMessage }
	}
	_ = json.Unmarshal(stdin, &raw) // what is readable; package skel has checked the rest
	c := Release{Interface: text(raw.Interface), IPAM: IPAM{Type: text(raw.IPAM.Type)}}
	c.Name, c.CNIVersion, c.RawServer, c.RawSpan, c.Credentials = text(raw.Name), text(raw.CNIVersion), text(raw.Server), text(raw.Span), text(raw.Credentials)
	c.Chained = raw.PrevResult != nil && string(raw.PrevResult) != "null"
	if json.Unmarshal(raw.PrevResult, &c.RawPrevResult) == nil {
		_ = c.readPrevious()
	}
	c.ServerError = c.readServer()
	c.Credentials = cmp.Or(c.Credentials, DefaultCredentials)
	if !isInterfaceName(c.Interface) {
		c.Interface = DefaultInterface
	}
	return c
}

// Same reports whether two configurations differ in prevResult only, which runtimes add for a DEL.
func Same(a, b []byte) bool {
	var x, y map[string]any
	err := errors.Join(json.Unmarshal(a, &x), json.Unmarshal(b, &y))
	delete(x, "prevResult")
	delete(y, "prevResult")
	return err == nil && reflect.DeepEqual(x, y)
}

// text is a JSON string, "" for another value.
func text(raw json.RawMessage) (s string) {
	_ = json.Unmarshal(raw, &s)
	return s
}

// ReadValid reads the valid attachments, for a GC. It distinguishes a missing list from an empty
// one, which runtimes also write as null.
func (c *Release) ReadValid(stdin []byte) error {
	var raw struct {
		Valid json.RawMessage `json:"cni.dev/valid-attachments"`
	}
	_ = json.Unmarshal(stdin, &raw)
	if raw.Valid == nil {
		return nil
	}
	var valid []types.GCAttachment
	if err := json.Unmarshal(raw.Valid, &valid); err != nil {
		return fmt.Errorf("%w: cni.dev/valid-attachments: %w", ErrDecode, inWords(err))
	}
	c.ValidAttachments, c.Complete = valid, true
	return nil
}

// WithValid returns a configuration with the valid attachments of c, for an IPAM plugin.
func (c *Release) WithValid(stdin []byte) ([]byte, error) {
	if !c.Complete {
		return stdin, nil
	}
	var keys map[string]json.RawMessage
	err := json.Unmarshal(stdin, &keys)
	if err == nil {
		var valid json.RawMessage
		if valid, err = json.Marshal(c.ValidAttachments); err == nil {
			keys["cni.dev/valid-attachments"], keys["cni.dev/attachments"] = valid, valid // libcni gives both
			stdin, err = json.Marshal(keys)
		}
	}
	return stdin, err
}
