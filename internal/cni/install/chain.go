package install

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"unnest.io/unnest/internal/cni/netconf"
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

// typeOf returns what a plugin is. Plugins of others may have keys of other types.
func typeOf(plugin json.RawMessage) (t typed) {
	_ = json.Unmarshal(plugin, &t)
	return t
}

// byNetwork reports whether the plugins of a list connect fractions by tunnels.
func byNetwork(content []byte) bool {
	_, plugins, _ := readList(content)
	return slices.ContainsFunc(plugins, func(p json.RawMessage) bool { return typeOf(p).Span == netconf.SpanNetwork })
}

// chained returns the list of the node's network, the first in the runtime's order that is not ours, with
// the plugins of our list after its own. Multus is not that network, but has its plugin called.
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
		content, err := os.ReadFile(filepath.Join(n.ConfDir, name))
		if err != nil {
			return nil, fmt.Errorf("read the network of the node: %w", err)
		}
		l, plugins, err := readList(content)
		if err == nil && (len(plugins) == 0 || typeOf(plugins[0]).Type == "") {
			err = errors.New("it has no plugin")
		}
		if err != nil {
			return nil, fmt.Errorf("read the network of the node: %s: %w", name, err)
		}
		if strings.HasPrefix(typeOf(plugins[0]).Type, "multus") {
			continue
		}
		if name < own {
			return nil, fmt.Errorf("the network of the node, %s, comes before %s in %s: rename it", name, own, n.ConfDir)
		}
		return chain(l, plugins, ours)
	}
	return nil, fmt.Errorf("%s has no network yet: install the network of the cluster's pods", n.ConfDir)
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
	var text bytes.Buffer
	e := json.NewEncoder(&text)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	err = e.Encode(l)
	return text.Bytes(), err
}
