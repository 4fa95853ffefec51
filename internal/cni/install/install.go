// Package install puts the CNI plugins and their network configuration on a Kubernetes node,
// keeps them there, and says whether pods can get their NICs. There and elsewhere it runs what gives NICs back (attachment.Reclaimer).
// On a node without the host daemon it chains the plugin hostlo after those of the node's network instead.
//
// What the plugins do belongs to their packages. The credentials of the node come from its
// host.
package install

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"unnest.io/unnest/internal/cni/netconf"
)

// Node is where a node's container runtime looks for plugins and networks.
type Node struct {
	Binary  string   // file of the plugins
	Plugins []string // names that the binary gets
	BinDir  string   // directory of plugins
	Config  string   // file of the network configuration list
	ConfDir string   // directory of network configuration lists
	Chain   bool     // install the plugins of Config after those of the node's own network, in a copy of its configuration

	count func(ctx context.Context, plugin string, stdin []byte) (NICs, error)
}

// Ensure installs what is missing or differs: the plugins first, and the configuration once the
// plugin of the network can work, because a runtime reports its node ready when it has one. A
// configuration stays when the plugin cannot work any more. The error says why it cannot; that
// pods have all NICs is none.
func (n Node) Ensure(ctx context.Context) (NICs, error) {
	binary, err := os.ReadFile(n.Binary)
	if err != nil {
		return NICs{}, fmt.Errorf("read plugins: %w", err)
	}
	for _, name := range n.Plugins {
		if err := ensure(filepath.Join(n.BinDir, name), binary, 0o755); err != nil {
			return NICs{}, fmt.Errorf("install plugin %s: %w", name, err)
		}
	}
	config, err := os.ReadFile(n.Config)
	if err != nil {
		return NICs{}, fmt.Errorf("read network configuration: %w", err)
	}
	nics, err := n.status(ctx, config)
	host := nics.Host
	if nics.Host = ""; byNetwork(config) {
		host = netconf.SpanNetwork
	}
	switch {
	case err != nil:
		return nics, err
	case n.Chain:
		err = n.ensureChained(config)
	default:
		if err = ensure(n.installed(), config, 0o600); err != nil {
			return nics, fmt.Errorf("install network configuration: %w", err)
		}
		if filepath.Base(n.Config) != copyName {
			err = removeCopy(filepath.Join(n.ConfDir, copyName)) // it would come first
		}
	}
	if err == nil {
		nics.Host = host
	}
	return nics, err
}

// copyName is the name of the chart's configuration for nodes without the host daemon.
const copyName = "00-unnest.conflist"

// removeCopy removes the copy of a network, if there is one.
func removeCopy(path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("remove the copy of the node's network: %w", err)
	}
	return nil
}

// installed is the path of the configuration that the runtime reads.
func (n Node) installed() string { return filepath.Join(n.ConfDir, filepath.Base(n.Config)) }

// ensure gives the file at path the content and the mode, whole or not at all.
func ensure(path string, content []byte, mode os.FileMode) (err error) {
	// Runtimes read every name with the extension of a configuration.
	part := "." + filepath.Base(path) + ".part-*"
	left, _ := filepath.Glob(filepath.Join(filepath.Dir(path), part))
	for _, l := range left { // of a process that was killed, or, if it is new, of one that writes
		if info, err := os.Lstat(l); err == nil && time.Since(info.ModTime()) > time.Hour {
			_ = os.Remove(l) // the next check tries again
		}
	}
	info, err := os.Stat(path)
	if present, readErr := os.ReadFile(path); err == nil && readErr == nil && bytes.Equal(present, content) && info.Mode().Perm() == mode {
		return nil
	}
	f, err := os.CreateTemp(filepath.Dir(path), part)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.Remove(f.Name()))
		}
	}()
	_, err = f.Write(content)
	if err = errors.Join(err, f.Chmod(mode), f.Close()); err != nil {
		return err
	}
	return os.Rename(f.Name(), path)
}

// status asks the host daemon for the NICs of pods, and the first plugin of a configuration list
// whether it can add a pod. Being asked, the plugin also renews the node's certificate.
func (n Node) status(ctx context.Context, list []byte) (NICs, error) {
	plugin, stdin, err := statusRequest(list)
	if err != nil {
		return NICs{}, fmt.Errorf("read network configuration %s: %w", n.Config, err)
	}
	nics, err := n.count(ctx, plugin, stdin)
	if err != nil {
		return nics, err
	}
	if err := n.ask(ctx, plugin, stdin); err != nil && !nics.full() { // then it cannot, which is no fault
		return nics, err
	}
	return nics, nil
}

// ask runs a plugin for STATUS.
func (n Node) ask(ctx context.Context, plugin string, stdin []byte) error {
	var out bytes.Buffer
	cmd := exec.CommandContext(ctx, filepath.Join(n.BinDir, plugin))
	cmd.Env = append(os.Environ(), "CNI_COMMAND=STATUS", "CNI_PATH="+n.BinDir)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(stdin), &out, &out
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("ask plugin %s for its status: %w", plugin, reason(out.Bytes(), err))
	}
	return nil
}

// statusVersion is the first version of CNI that has STATUS.
const statusVersion = "1.1.0"

// statusRequest returns the first plugin of a configuration list, and its input for STATUS.
func statusRequest(list []byte) (plugin string, stdin []byte, err error) {
	var l struct {
		Name    string
		Plugins []map[string]any
	}
	if err := json.Unmarshal(list, &l); err != nil {
		return "", nil, err
	}
	if len(l.Plugins) == 0 {
		return "", nil, errors.New("it has no plugins: want a network configuration list")
	}
	first := l.Plugins[0]
	plugin, _ = first["type"].(string)
	if plugin == "" || strings.ContainsRune(plugin, '/') {
		return "", nil, fmt.Errorf("type %q of its first plugin: want the name of a plugin", plugin)
	}
	first["name"], first["cniVersion"] = l.Name, statusVersion
	stdin, err = json.Marshal(first)
	return plugin, stdin, err
}

// reason returns the error that a plugin has printed, or else how it ended.
func reason(out []byte, err error) error {
	var e struct{ Msg, Details string }
	if json.Unmarshal(out, &e) == nil && e.Msg != "" {
		return errors.New(e.Msg)
	}
	return fmt.Errorf("%w: %s", err, bytes.TrimSpace(out))
}
