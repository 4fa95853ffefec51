package cni

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/containernetworking/cni/libcni"
	"github.com/containernetworking/cni/pkg/types"
	types100 "github.com/containernetworking/cni/pkg/types/100"
)

// network is a network configuration list at one version of the specification.
type network struct {
	version string
	list    *libcni.NetworkConfigList
	path    []string
	peers   []Peer
	wait    time.Duration
	exec    *executor
	dir     string // holds the results that libcni caches
	ipam    string // the IPAM plugin; "": none
	cni     *libcni.CNIConfig
}

// open reads the list at the version in its own text.
func open(n Network) (*network, error) {
	list, err := libcni.ConfListFromBytes(n.List)
	if err != nil {
		return nil, fmt.Errorf("read network configuration list: %w", err)
	}
	dir, err := os.MkdirTemp("", "cni-conformance-")
	if err != nil {
		return nil, err
	}
	opened := &network{version: list.CNIVersion, list: list, path: n.Path, peers: n.Peers, dir: dir,
		wait: cmp.Or(n.Wait, time.Minute), exec: &executor{timeout: cmp.Or(n.Timeout, 2*time.Minute)}}
	// A type without a binary is the plugin's own way to assign addresses.
	ipam := opened.plugin().Network.IPAM.Type
	if _, err := opened.exec.FindInPath(ipam, n.Path); err == nil {
		opened.ipam = ipam
	}
	return opened.with("results"), nil
}

func (n *network) close() { _ = os.RemoveAll(n.dir) }

// with returns the network with another cache of results.
func (n *network) with(results string) *network {
	c := *n
	c.cni = libcni.NewCNIConfigWithCacheDir(c.path, c.dir+"/"+results, c.exec)
	return &c
}

// withoutResults returns the network of a runtime that has lost its results. Its DEL
// passes no prevResult.
func (n *network) withoutResults() *network { return n.with("no-results") }

func (n *network) at(version string) (*network, error) {
	var raw map[string]json.RawMessage
	if err := json.Unmarshal(n.list.Bytes, &raw); err != nil {
		return nil, err
	}
	raw["cniVersion"] = json.RawMessage(`"` + version + `"`)
	delete(raw, "cniVersions")
	text, err := json.Marshal(raw)
	if err != nil {
		return nil, err
	}
	list, err := libcni.ConfListFromBytes(text)
	if err != nil {
		return nil, fmt.Errorf("read network configuration list at version %s: %w", version, err)
	}
	c := *n
	c.version, c.list = version, list
	return c.with("results-" + version), nil
}

// plugin returns the first plugin of the list, which creates the interface.
func (n *network) plugin() *libcni.PluginConfig { return n.list.Plugins[0] }

// supported are the versions that each plugin reports, by its name.
type supported map[string][]string

// lacks returns the name of a plugin that does not report the version; "": all do.
func (s supported) lacks(version string) string {
	for _, name := range sortedKeys(s) {
		if !slices.Contains(s[name], version) {
			return name
		}
	}
	return ""
}

var errNoVersion = fmt.Errorf("select a version: no version of %v is supported by all plugins", Versions)

// newest returns the network at the newest version that all its plugins support.
func (n *network) newest(ctx context.Context) (*network, error) {
	s, err := n.versions(ctx)
	if err != nil {
		return nil, err
	}
	for _, v := range slices.Backward(Versions) {
		if s.lacks(v) == "" {
			return n.at(v)
		}
	}
	return nil, errNoVersion
}

// versions asks all plugins for their versions, without libcni.
func (n *network) versions(ctx context.Context) (supported, error) {
	all := supported{}
	names := []string{n.ipam}
	for _, p := range n.list.Plugins {
		names = append(names, p.Network.Type)
	}
	for _, name := range names {
		if name == "" {
			continue
		}
		path, err := n.exec.FindInPath(name, n.path)
		if err == nil {
			all[name], err = n.exec.versions(ctx, path)
		}
		if err != nil {
			return nil, fmt.Errorf("get the versions of %s: %w", name, err)
		}
	}
	return all, nil
}

// versions calls VERSION, which needs no parameter except the command.
func (e *executor) versions(ctx context.Context, path string) ([]string, error) {
	a, err := e.call(ctx, path, []byte(`{"cniVersion":"1.0.0"}`), append(cleanEnviron(), "CNI_COMMAND=VERSION"))
	if err == nil {
		err = a.err()
	}
	if err != nil {
		return nil, err
	}
	var v struct {
		CNIVersion        string   `json:"cniVersion"`
		SupportedVersions []string `json:"supportedVersions"`
	}
	if err := json.Unmarshal(a.stdout, &v); err != nil {
		return nil, fmt.Errorf("read version object: %w: %s", err, brief(a.stdout))
	}
	if v.CNIVersion == "" || len(v.SupportedVersions) == 0 {
		return nil, fmt.Errorf("read version object: no cniVersion or supportedVersions: %s", brief(a.stdout))
	}
	return v.SupportedVersions, nil
}

// cleanEnviron returns this process's environment without CNI parameters.
func cleanEnviron() []string {
	return slices.DeleteFunc(os.Environ(), func(s string) bool { return strings.HasPrefix(s, "CNI_") })
}

// named adds the command to an error of libcni.
func named(command string, err error) error {
	if err != nil {
		return fmt.Errorf("%s: %w", command, err)
	}
	return nil
}

func (n *network) add(ctx context.Context, rt *libcni.RuntimeConf) (*types100.Result, error) {
	r, err := n.cni.AddNetworkList(ctx, n.list, rt)
	if err != nil {
		return nil, named("ADD", err)
	}
	result, err := types100.NewResultFromResult(r)
	return result, named("read the result of ADD", err)
}

func (n *network) del(ctx context.Context, rt *libcni.RuntimeConf) error {
	return named("DEL", n.cni.DelNetworkList(ctx, n.list, rt))
}

func (n *network) check(ctx context.Context, rt *libcni.RuntimeConf) error {
	return named("CHECK", n.cni.CheckNetworkList(ctx, n.list, rt))
}

// gc removes all attachments except the valid ones.
func (n *network) gc(ctx context.Context, valid []types.GCAttachment) error {
	if valid == nil {
		valid = []types.GCAttachment{} // JSON null is not a list
	}
	return named("GC", n.cni.GCNetworkList(ctx, n.list, &libcni.GCArgs{ValidAttachments: valid}))
}

func (n *network) status(ctx context.Context) error {
	return named("STATUS", n.cni.GetStatusNetworkList(ctx, n.list))
}

// config returns the configuration of the first plugin, changed by edits.
func (n *network) config(edits map[string]any) ([]byte, error) {
	inject := map[string]any{"name": n.list.Name, "cniVersion": n.version}
	maps.Copy(inject, edits)
	c, err := libcni.InjectConf(n.plugin(), inject)
	if err != nil {
		return nil, fmt.Errorf("make configuration: %w", err)
	}
	return c.Bytes, nil
}

// parameters are those of section 2, by environment variable.
type parameters map[string]string

func (n *network) parameters(command string, rt *libcni.RuntimeConf) parameters {
	return parameters{
		"CNI_COMMAND": command, "CNI_CONTAINERID": rt.ContainerID, "CNI_NETNS": rt.NetNS, "CNI_IFNAME": rt.IfName,
		"CNI_PATH": strings.Join(n.path, string(os.PathListSeparator)),
	}
}

// raw runs the first plugin without libcni.
func (n *network) raw(ctx context.Context, p parameters, config []byte) (answer, error) {
	path, err := n.exec.FindInPath(n.plugin().Network.Type, n.path)
	if err != nil {
		return answer{}, err
	}
	env := cleanEnviron()
	for _, k := range sortedKeys(p) {
		env = append(env, k+"="+p[k])
	}
	return n.exec.call(ctx, path, config, env)
}
