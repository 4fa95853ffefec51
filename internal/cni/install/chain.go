package install

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"unnest.io/unnest/internal/cni/netconf"
	"unnest.io/unnest/internal/cni/plugin"
)

// list is a network configuration list. It keeps keys that it does not know.
type list map[string]json.RawMessage

// typed is what a plugin's configuration says of the plugin.
type typed struct{ Type, Span string }

// readList reads a list, or a configuration of one plugin as a list of it.
func readList(content []byte) (l list, plugins []json.RawMessage, err error) {
	if err := json.Unmarshal(content, &l); err != nil {
		return nil, nil, err
	}
	if l["plugins"] == nil {
		return list{"cniVersion": l["cniVersion"], "name": l["name"]}, []json.RawMessage{content}, nil
	}
	return l, plugins, json.Unmarshal(l["plugins"], &plugins)
}

// check returns why hostlo cannot be chained to the plugins of a network.
func (l list) check(plugins []json.RawMessage) error {
	var name, version string
	_, _ = json.Unmarshal(l["name"], &name), json.Unmarshal(l["cniVersion"], &version)
	switch {
	case len(plugins) == 0 || typeOf(plugins[0]).Type == "":
		return errors.New("it has no plugin")
	case name == "":
		return errors.New("it has no name")
	case !slices.Contains(plugin.Versions(), version):
		return fmt.Errorf("its cniVersion is %q: hostlo needs one of %s", version, strings.Join(plugin.Versions(), ", "))
	case strings.HasPrefix(typeOf(plugins[0]).Type, "multus"):
		return errors.New("it is Multus: chain hostlo in the network that Multus calls by yourself")
	}
	return nil
}

// typeOf returns what a plugin is. Plugins of others may have keys of other types.
func typeOf(configuration json.RawMessage) (t typed) {
	_ = json.Unmarshal(configuration, &t)
	return t
}

// byNetwork reports whether the plugins of a list connect fractions by tunnels.
func byNetwork(content []byte) bool {
	_, plugins, _ := readList(content)
	return slices.ContainsFunc(plugins, func(p json.RawMessage) bool { return typeOf(p).Span == netconf.SpanNetwork })
}

// chained returns the list of the node's network, the first in the runtime's order that is not ours, with
// the plugins of our list after its own.
func (n Node) chained(ours []byte) ([]byte, error) {
	entries, err := os.ReadDir(n.ConfDir) // sorted by name, as the runtime does
	if err != nil {
		return nil, fmt.Errorf("find the network of the node: %w", err)
	}
	own := filepath.Base(n.installed())
	for _, e := range entries {
		name := e.Name()
		if name == own || strings.HasPrefix(name, ".") || !slices.Contains([]string{".conf", ".conflist", ".json"}, filepath.Ext(name)) {
			continue
		}
		if name < own {
			return nil, fmt.Errorf("the network %s comes before %s in %s: rename it, or chain hostlo in it by yourself", name, own, n.ConfDir)
		}
		content, err := os.ReadFile(filepath.Join(n.ConfDir, name))
		if err != nil {
			return nil, fmt.Errorf("read the network of the node: %w", err)
		}
		l, plugins, err := readList(content)
		if err == nil {
			err = l.check(plugins)
		}
		if err != nil {
			return nil, fmt.Errorf("read the network of the node: %s: %w", name, err)
		}
		return chain(l, plugins, ours)
	}
	return nil, fmt.Errorf("%s has no network yet: install the network of the cluster's pods", n.ConfDir)
}

// ensureChained makes the copy of the node's network like it. A copy that was not there is not trusted before it has stayed until the next
// check, and one that somebody else has changed is left alone.
func (n Node) ensureChained(ours []byte) error {
	content, err := n.chained(ours)
	if err != nil {
		return err
	}
	path := n.installed()
	present, err := os.ReadFile(path)
	missing := errors.Is(err, os.ErrNotExist)
	if err != nil && !missing {
		return err
	}
	if noted, sum := sums(present); !missing && noted != sum {
		return fmt.Errorf("another program has changed %s: have it change the network of the node instead, and remove the file", path)
	}
	if err := ensure(path, content, 0o600); err != nil {
		return fmt.Errorf("install network configuration: %w", err)
	}
	if missing {
		return fmt.Errorf("%s was not there, and is now: if this does not end, another program removes it, such as Cilium with cni.exclusive=true", path)
	}
	return nil
}

// chain appends the plugins of our list, except those that the network has already.
func chain(l list, plugins []json.RawMessage, ours []byte) ([]byte, error) {
	_, more, err := readList(ours)
	if err != nil {
		return nil, err
	}
	for _, p := range more {
		if !slices.ContainsFunc(plugins, func(q json.RawMessage) bool { return typeOf(q).Type == typeOf(p).Type }) {
			plugins = append(plugins, p)
		}
	}
	if l["plugins"], err = json.Marshal(plugins); err != nil {
		return nil, err
	}
	unnoted, err := json.Marshal(l)
	if err != nil {
		return nil, err
	}
	_, sum := sums(unnoted)
	l[sumKey], _ = json.Marshal(sum) // a string always marshals
	var text bytes.Buffer
	e := json.NewEncoder(&text)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	err = e.Encode(l)
	return text.Bytes(), err
}

// sumKey is the key of a copy that has its sum. Runtimes pass over keys that they do not know.
const sumKey = "unnest.io/sum"

// sums returns the sum that is noted in a list, and that of all else in it.
func sums(content []byte) (noted, sum string) {
	var all map[string]any
	_ = json.Unmarshal(content, &all)
	noted, _ = all[sumKey].(string)
	delete(all, sumKey)
	text, _ := json.Marshal(all) // with its keys in order
	return noted, fmt.Sprintf("%x", sha256.Sum256(text))[:32]
}
