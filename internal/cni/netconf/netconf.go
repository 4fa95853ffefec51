// Package netconf parses the configuration that a container runtime passes to our
// CNI plugins. Errors name the key.
//
// It does not look at the machine: whether a file or a link exists is checked by the
// plugin that needs it.
package netconf

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"path/filepath"
	"reflect"
	"strings"
	"time"
	"unicode"

	"github.com/containernetworking/cni/pkg/types"
	types100 "github.com/containernetworking/cni/pkg/types/100"
	"github.com/containernetworking/cni/pkg/version"
)

// Defaults and limits of Base.
const (
	DefaultCredentials = "/etc/unnest"
	DefaultWait        = 30 * time.Second
	MaxWait            = 2 * time.Minute // less than the kubelet's limit for a whole ADD
)

// Base is the part that the configurations of all our plugins have in common. Besides
// CNI's own keys it has:
//
//	"server"       "10.200.0.1:7443", the host daemon's address; required
//	"credentials"  directory with ca.crt, client.crt, client.key; default /etc/unnest
//	"wait"         how long the NIC may take to appear, "30s" by default, at most "2m"
//	"log"          true: one line per ADD with the duration of each step, to stderr
type Base struct {
	types.PluginConf                // ValidAttachments are read by Release only
	Server           netip.AddrPort `json:"-"`
	Credentials      string         `json:"credentials"`
	Wait             time.Duration  `json:"-"`
	Log              bool           `json:"log"`

	RawServer  string                     `json:"server"`
	RawSpan    string                     `json:"span"` // hostlo's
	RawWait    string                     `json:"wait"`
	RawRuntime map[string]json.RawMessage `json:"runtimeConfig"` // by capability
	RawArgs    json.RawMessage            `json:"args"`

	keys map[string]json.RawMessage // all of the configuration
}

// Errors for the error codes of the CNI specification.
var (
	ErrDecode = errors.New("parse network configuration") // not JSON, or a value of the wrong type
	ErrArgs   = errors.New("CNI_ARGS")                    // CNI_ARGS is wrong
)

// errConfiguration is wrapped by all other errors about the configuration.
var errConfiguration = errors.New("network configuration")

// Previous returns prevResult, the result of the plugins before in the chain or of
// the ADD; nil when there is none.
func (b *Base) Previous() (*types100.Result, error) {
	if b.PrevResult == nil {
		return nil, nil
	}
	r, err := types100.NewResultFromResult(b.PrevResult)
	if err != nil {
		return nil, fmt.Errorf("read prevResult: %w", err)
	}
	return r, nil
}

// RequirePrevious is Previous for a CHECK, which cannot do without.
func (b *Base) RequirePrevious() (*types100.Result, error) {
	if b.PrevResult == nil {
		return nil, types.NewError(types.ErrInvalidNetworkConfig, "network configuration: prevResult is missing; CHECK compares the pod with it", "")
	}
	return b.Previous()
}

// parse parses stdin into the configuration c, of which b is the base. An error wraps
// ErrDecode when the input is not JSON of c's types.
func parse(stdin []byte, c any, b *Base, complete func() error) error {
	if err := cmp.Or(json.Unmarshal(stdin, c), json.Unmarshal(stdin, &b.keys)); err != nil {
		return fmt.Errorf("%w: %w", ErrDecode, inWords(err))
	}
	if err := b.complete(); err != nil {
		return fmt.Errorf("%w: %w", errConfiguration, err)
	}
	if err := complete(); err != nil {
		return err
	}
	return b.readPrevious()
}

func (b *Base) readPrevious() error {
	if err := version.ParsePrevResult(&b.PluginConf); err != nil {
		return fmt.Errorf("%w: prevResult: %w", errConfiguration, inWords(err))
	}
	return nil
}

func (b *Base) complete() error {
	if b.RawSpan != SpanNetwork {
		if err := b.readServer(); err != nil {
			return err
		}
	}
	var err error
	b.Wait = DefaultWait
	if b.RawWait != "" {
		if b.Wait, err = time.ParseDuration(b.RawWait); err != nil || b.Wait <= 0 || b.Wait > MaxWait {
			return fmt.Errorf("wait %q: want a duration above 0, at most %v, such as %q", b.RawWait, MaxWait, "30s")
		}
	}
	b.Credentials = cmp.Or(b.Credentials, DefaultCredentials)
	if !filepath.IsAbs(b.Credentials) {
		return fmt.Errorf("credentials %q: want an absolute path", b.Credentials)
	}
	return nil
}

func (b *Base) readServer() error {
	server, err := netip.ParseAddrPort(b.RawServer)
	switch {
	case b.RawServer == "":
		return fmt.Errorf("server is missing: want the host daemon's ADDRESS:PORT, such as %q", "10.200.0.1:7443")
	case err != nil || server.Port() == 0 || server.Addr().IsUnspecified():
		return fmt.Errorf("server %q: want IP-ADDRESS:PORT, such as %q", b.RawServer, "10.200.0.1:7443")
	}
	b.Server = server
	return nil
}

// capability decodes what the runtime passes for a capability.
func (b *Base) capability(name string, into any) error {
	raw, ok := b.RawRuntime[name]
	if !ok {
		return nil
	}
	if err := json.Unmarshal(raw, into); err != nil {
		return fmt.Errorf("%w: runtimeConfig.%s: %w", ErrDecode, name, inWords(err))
	}
	return nil
}

// isInterfaceName follows the kernel (dev_valid_name in net/core/dev.c). A name with % is a pattern
// there, which stands for any free name.
func isInterfaceName(s string) bool {
	return s != "" && len(s) <= 15 && s != "." && s != ".." &&
		!strings.ContainsFunc(s, func(r rune) bool { return r == '/' || r == ':' || r == '%' || unicode.IsSpace(r) })
}

// inWords gives an error of package json the words of the configuration's author: the key, what it
// has, and what is wanted.
func inWords(err error) error {
	var t *json.UnmarshalTypeError
	if !errors.As(err, &t) {
		return err
	}
	key := t.Field
	for head, rest, ok := strings.Cut(key, "."); ok && unicode.IsUpper(rune(head[0])); head, rest, ok = strings.Cut(key, ".") {
		key = rest // after the name of an embedded struct
	}
	if key != "" {
		key += ": "
	}
	got, _, _ := strings.Cut(t.Value, " ") // "number 1.5"
	return fmt.Errorf("%sgot %s, want %s", key, inJSON[got], wanted(t.Type))
}

// inJSON are the values as package json names them.
var inJSON = map[string]string{"string": "a string", "number": "a number", "bool": "true or false", "array": "a list", "object": "an object"}

func wanted(t reflect.Type) string {
	switch t.Kind() {
	case reflect.String:
		return "a string"
	case reflect.Bool:
		return "true or false"
	case reflect.Int, reflect.Int64, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		return "a whole number"
	case reflect.Slice:
		return "a list"
	case reflect.Pointer:
		return wanted(t.Elem())
	}
	return "an object"
}
