package cni

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
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
	exec    *executor
	dir     string // results that libcni keeps
	ipam    string // the IPAM plugin; "": there is none
	cni     *libcni.CNIConfig
}

// open reads the list at the version it has itself.
func open(n Network) (*network, error) {
	list, err := libcni.ConfListFromBytes(n.List)
	if err != nil {
		return nil, fmt.Errorf("read network configuration list: %w", err)
	}
	dir, err := os.MkdirTemp("", "cni-conformance-")
	if err != nil {
		return nil, err
	}
	opened := &network{version: list.CNIVersion, list: list, path: n.Path, dir: dir,
		exec: newExecutor(cmp.Or(n.Timeout, 2*time.Minute))}
	// A type that no program has is the plugin's own way to get addresses.
	ipam := opened.plugin().Network.IPAM.Type
	if _, err := opened.exec.FindInPath(ipam, n.Path); err == nil {
		opened.ipam = ipam
	}
	return opened.with("results"), nil
}

func (n *network) close() { _ = os.RemoveAll(n.dir) }

// with returns the network with another store of results.
func (n *network) with(results string) *network {
	c := *n
	c.cni = libcni.NewCNIConfigWithCacheDir(c.path, c.dir+"/"+results, c.exec)
	return &c
}

// forgetful is the network of a runtime that has lost its results: DEL gets no
// prevResult.
func (n *network) forgetful() *network { return n.with("forgotten") }

// at returns the network at another version.
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
		return nil, fmt.Errorf("make the network configuration list of version %s: %w", version, err)
	}
	c := *n
	c.version, c.list = version, list
	return c.with("results-" + version), nil
}

// plugin is the first of the list, which makes the interface.
func (n *network) plugin() *libcni.PluginConfig { return n.list.Plugins[0] }

// spoken are the versions that each plugin reports.
type spoken map[string][]string

// lacks returns a plugin that does not report the version.
func (s spoken) lacks(version string) (who string, lacking bool) {
	for _, name := range sortedKeys(s) {
		if !slices.Contains(s[name], version) {
			return name, true
		}
	}
	return "", false
}

// versions asks all plugins, by the protocol alone: VERSION needs no parameter
// but the command.
func (n *network) versions(ctx context.Context) (spoken, error) {
	all := spoken{}
	names := []string{n.ipam}
	for _, p := range n.list.Plugins {
		names = append(names, p.Network.Type)
	}
	for _, name := range names {
		if name == "" {
			continue
		}
		path, err := n.exec.FindInPath(name, n.path)
		if err != nil {
			return nil, err
		}
		if all[name], err = askVersions(ctx, n.exec, path); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
	}
	return all, nil
}

func askVersions(ctx context.Context, e *executor, path string) ([]string, error) {
	a, err := e.call(ctx, path, []byte(`{"cniVersion":"1.0.0"}`), append(cleanEnviron(), "CNI_COMMAND=VERSION"))
	if err != nil {
		return nil, err
	}
	if err := a.err(); err != nil {
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
		return nil, fmt.Errorf("version object without cniVersion or supportedVersions: %s", brief(a.stdout))
	}
	return v.SupportedVersions, nil
}

// cleanEnviron is this process's environment without what CNI means.
func cleanEnviron() []string {
	return slices.DeleteFunc(os.Environ(), func(s string) bool { return strings.HasPrefix(s, "CNI_") })
}

// attachment is a pod's interface as a runtime names it.
func attachment(p *pod, ifname string) *libcni.RuntimeConf {
	return &libcni.RuntimeConf{ContainerID: p.id, NetNS: p.path, IfName: ifname}
}

func (n *network) add(ctx context.Context, rt *libcni.RuntimeConf) (*types100.Result, error) {
	r, err := n.cni.AddNetworkList(ctx, n.list, rt)
	if err != nil {
		return nil, fmt.Errorf("ADD: %w", err)
	}
	result, err := types100.NewResultFromResult(r)
	if err != nil {
		return nil, fmt.Errorf("read the result of ADD: %w", err)
	}
	return result, nil
}

func (n *network) del(ctx context.Context, rt *libcni.RuntimeConf) error {
	if err := n.cni.DelNetworkList(ctx, n.list, rt); err != nil {
		return fmt.Errorf("DEL: %w", err)
	}
	return nil
}

func (n *network) check(ctx context.Context, rt *libcni.RuntimeConf) error {
	if err := n.cni.CheckNetworkList(ctx, n.list, rt); err != nil {
		return fmt.Errorf("CHECK: %w", err)
	}
	return nil
}

// gc keeps the given attachments and no others.
func (n *network) gc(ctx context.Context, valid []types.GCAttachment) error {
	if valid == nil {
		valid = []types.GCAttachment{}
	}
	if err := n.cni.GCNetworkList(ctx, n.list, &libcni.GCArgs{ValidAttachments: valid}); err != nil {
		return fmt.Errorf("GC: %w", err)
	}
	return nil
}

func (n *network) status(ctx context.Context) error {
	if err := n.cni.GetStatusNetworkList(ctx, n.list); err != nil {
		return fmt.Errorf("STATUS: %w", err)
	}
	return nil
}

// config is what the first plugin gets on its standard input, changed by edits.
func (n *network) config(edits map[string]any) ([]byte, error) {
	inject := map[string]any{"name": n.list.Name, "cniVersion": n.version}
	for k, v := range edits {
		inject[k] = v
	}
	c, err := libcni.InjectConf(n.plugin(), inject)
	if err != nil {
		return nil, fmt.Errorf("make configuration: %w", err)
	}
	return c.Bytes, nil
}

// parameters are those of section 2, by their names in the environment.
type parameters map[string]string

func (n *network) parameters(command string, rt *libcni.RuntimeConf) parameters {
	return parameters{
		"CNI_COMMAND": command, "CNI_CONTAINERID": rt.ContainerID, "CNI_NETNS": rt.NetNS, "CNI_IFNAME": rt.IfName,
		"CNI_PATH": strings.Join(n.path, string(os.PathListSeparator)),
	}
}

// raw runs the first plugin by the execution protocol itself.
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
