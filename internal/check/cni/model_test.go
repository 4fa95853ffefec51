package cni_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/containernetworking/cni/pkg/invoke"
	"github.com/containernetworking/cni/pkg/skel"
	"github.com/containernetworking/cni/pkg/types"
	"github.com/containernetworking/cni/pkg/version"
	"github.com/containernetworking/plugins/pkg/ns"
	"github.com/vishvananda/netlink"
)

// pluginDir is where Debian's containernetworking-plugins has its plugins.
const pluginDir = "/usr/lib/cni"

// modelConfig is the part of its configuration that the model plugin reads.
type modelConfig struct {
	CNIVersion string `json:"cniVersion"`
	Name       string `json:"name"`
	Capacity   int    `json:"capacity"`
	IPAM       struct {
		Type    string `json:"type"`
		DataDir string `json:"dataDir"`
	} `json:"ipam"`
	PrevResult json.RawMessage      `json:"prevResult"`
	Valid      []types.GCAttachment `json:"cni.dev/valid-attachments"`
}

// model is a plugin that meets all demands and recommendations of the specification, except
// for one fault. It is the reference plugin bridge with GC, STATUS, roll-back of a failed
// ADD, and complete error objects.
type model struct {
	// wrong is the fault: the part of the binary's name after "model-".
	wrong  string
	config modelConfig
	text   []byte
}

func modelMain(fault string) int {
	text, err := io.ReadAll(os.Stdin)
	if err != nil {
		return 1
	}
	m := &model{wrong: fault, text: text}
	_ = json.Unmarshal(text, &m.config) // skel reports errors
	switch m.wrong {
	case "accepts-any-id":
		_ = os.Setenv("CNI_CONTAINERID", "lax")
	case "accepts-any-interface":
		_ = os.Setenv("CNI_IFNAME", "lax")
	}
	r, w, err := os.Pipe()
	if err != nil {
		return 1
	}
	go func() {
		_, _ = w.Write(text)
		_ = w.Close()
	}()
	os.Stdin = r
	failure := skel.PluginMainFuncsWithError(skel.CNIFuncs{Add: m.add, Del: m.del, Check: m.check, GC: m.gc, Status: m.status}, allVersions, "model")
	return m.report(failure)
}

func (m *model) fault(name string) bool { return m.wrong == name }

// report prints an error object.
func (m *model) report(e *types.Error) int {
	if e == nil {
		return 0
	}
	switch m.wrong {
	case "error-not-json":
		_, _ = fmt.Fprintln(os.Stdout, "something went wrong:", e.Msg)
		return 1
	case "error-without-code":
		_, _ = fmt.Fprintf(os.Stdout, `{"cniVersion":"1.0.0","msg":%q}`, e.Msg)
		return 1
	case "error-wrong-code":
		e.Code = 999
	case "error-anonymous":
		e.Msg = "a parameter is missing"
	}
	object := map[string]any{"cniVersion": m.config.CNIVersion, "code": e.Code, "msg": e.Msg}
	if m.fault("error-without-version") {
		delete(object, "cniVersion")
	}
	_ = json.NewEncoder(os.Stdout).Encode(object)
	if m.fault("error-exit-zero") {
		return 0
	}
	return 1
}

// lock serializes the commands of a container.
func (m *model) lock(name string) (unlock func(), err error) {
	if err := os.MkdirAll(m.config.IPAM.DataDir, 0o755); err != nil {
		return nil, err
	}
	how := syscall.LOCK_EX
	switch m.wrong {
	case "not-parallel":
		name, how = "all", how|syscall.LOCK_NB
	case "stale-lock": // outlives a killed process
		path := filepath.Join(m.config.IPAM.DataDir, "stale")
		f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL, 0o600)
		if err != nil {
			return nil, err
		}
		f.Close()
		time.Sleep(50 * time.Millisecond)
		return func() { _ = os.Remove(path) }, nil
	}
	f, err := os.Create(filepath.Join(m.config.IPAM.DataDir, "lock-"+name))
	if err != nil {
		return nil, err
	}
	return func() { _ = f.Close() }, syscall.Flock(int(f.Fd()), how)
}

// bridge runs the reference plugin at the newest version that Debian's supports.
func (m *model) bridge(command string) ([]byte, error) {
	var config map[string]any
	if err := json.Unmarshal(m.text, &config); err != nil {
		return nil, err
	}
	config["type"] = "bridge"
	if m.config.CNIVersion == "1.1.0" {
		config["cniVersion"] = "1.0.0"
		if prev, ok := config["prevResult"].(map[string]any); ok {
			prev["cniVersion"] = "1.0.0"
		}
	}
	if m.fault("same-address") {
		config["ipam"].(map[string]any)["dataDir"] = filepath.Join(m.config.IPAM.DataDir, os.Getenv("CNI_CONTAINERID"))
	}
	text, err := json.Marshal(config)
	if err != nil {
		return nil, err
	}
	c := exec.Command(filepath.Join(pluginDir, "bridge"))
	c.Stdin, c.Stderr = bytes.NewReader(text), os.Stderr
	c.Env = append(os.Environ(), "CNI_COMMAND="+command)
	if m.fault("always-eth0") {
		c.Env = append(c.Env, "CNI_IFNAME=eth0")
	}
	out, err := c.Output()
	if err != nil {
		e := &types.Error{Code: types.ErrInternal, Msg: "bridge failed"}
		_ = json.Unmarshal(out, e)
		return nil, e
	}
	return out, nil
}

// withLink calls do with a link of a network namespace, inside it.
func withLink(netns, name string, do func(netlink.Link) error) error {
	return ns.WithNetNSPath(netns, func(ns.NetNS) error {
		l, err := netlink.LinkByName(name)
		if err != nil {
			return err
		}
		return do(l)
	})
}

func exists(netns, name string) bool {
	return withLink(netns, name, func(netlink.Link) error { return nil }) == nil
}

func (m *model) add(args *skel.CmdArgs) error {
	unlock, err := m.lock(args.ContainerID)
	if err != nil {
		return err
	}
	defer unlock()
	if err := m.addFault(args); err != nil {
		if errors.Is(err, errDone) {
			return nil
		}
		return err
	}
	out, err := m.bridge("ADD")
	if err != nil {
		if m.fault("leaks-on-failure") {
			_ = netlink.LinkAdd(&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: fmt.Sprint("leak", os.Getpid())}, PeerName: fmt.Sprint("peer", os.Getpid())})
		}
		if !m.fault("no-rollback") {
			_, _ = m.bridge("DEL")
		}
		return err
	}
	return m.print(args, out)
}

// errDone says that a fault has already completed ADD.
var errDone = errors.New("done")

// first reports whether this is the first call for a container.
func (m *model) first(args *skel.CmdArgs) bool {
	f, err := os.OpenFile(filepath.Join(m.config.IPAM.DataDir, "first-"+args.ContainerID), os.O_CREATE|os.O_EXCL, 0o600)
	if err == nil {
		f.Close()
	}
	return err == nil
}

// addFault refuses an existing interface, and acts out some of the faults.
func (m *model) addFault(args *skel.CmdArgs) error {
	if m.fault("refuses-all") {
		return errors.New("no pods today")
	}
	if m.fault("try-again") && m.first(args) {
		return types.NewError(types.ErrTryAgainLater, "busy", "")
	}
	if m.fault("refuses-args") && args.Args != "" {
		return errors.New("unknown CNI_ARGS")
	}
	if m.fault("one-interface") && exists(args.Netns, "eth0") {
		return errors.New("the pod has an interface")
	}
	if !exists(args.Netns, args.IfName) {
		return nil
	}
	switch m.wrong {
	case "replaces-interface":
		return withLink(args.Netns, args.IfName, func(l netlink.Link) error {
			_, _ = m.bridge("DEL")
			_ = netlink.LinkDel(l)
			return nil
		})
	case "second-add-succeeds":
		text, err := os.ReadFile(filepath.Join(m.config.IPAM.DataDir, "result-"+args.ContainerID))
		if err != nil {
			return err
		}
		_, _ = os.Stdout.Write(text)
		return errDone
	case "second-add-breaks":
		_, _ = m.bridge("DEL")
	}
	return errors.New("the interface exists")
}

// print prints the result, changed by the fault.
func (m *model) print(args *skel.CmdArgs, out []byte) error {
	var r map[string]any
	if err := json.Unmarshal(out, &r); err != nil {
		return err
	}
	r["cniVersion"] = m.config.CNIVersion
	interfaces, ips := r["interfaces"].([]any), r["ips"].([]any)
	pod, ip := interfaces[2].(map[string]any), ips[0].(map[string]any)
	switch m.wrong {
	case "wrong-result-version":
		r["cniVersion"] = "0.1.0"
	case "wrong-mac":
		pod["mac"] = "02:00:00:00:00:01"
	case "wrong-mtu":
		pod["mtu"] = 1499
	case "wrong-address":
		ip["address"] = "10.9.9.9/24"
	case "address-without-prefix":
		ip["address"] = "10.9.9.9"
	case "wrong-route":
		r["routes"] = []any{map[string]any{"dst": "198.51.100.0/24"}}
	case "wrong-sandbox":
		pod["sandbox"] = "/run/netns/other"
	case "wrong-index":
		ip["interface"] = 7
	case "no-ip-version":
		delete(ip, "version")
	case "link-down":
		return withLink(args.Netns, args.IfName, func(l netlink.Link) error {
			return errors.Join(netlink.LinkSetDown(l), json.NewEncoder(os.Stdout).Encode(r))
		})
	case "unreachable":
		l, err := netlink.LinkByName(interfaces[1].(map[string]any)["name"].(string))
		if err != nil {
			return err
		}
		if err := netlink.LinkSetNoMaster(l); err != nil {
			return err
		}
	case "same-mac":
		pod["mac"] = "02:00:00:00:00:01"
		err := withLink(args.Netns, args.IfName, func(l netlink.Link) error {
			mac, _ := net.ParseMAC("02:00:00:00:00:01")
			return netlink.LinkSetHardwareAddr(l, mac)
		})
		if err != nil {
			return err
		}
	}
	text, err := json.Marshal(r)
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(m.config.IPAM.DataDir, "result-"+args.ContainerID), text, 0o600); err != nil {
		return err
	}
	_, err = os.Stdout.Write(text)
	return err
}

func (m *model) del(args *skel.CmdArgs) error {
	unlock, err := m.lock(args.ContainerID)
	if err != nil {
		return err
	}
	defer unlock()
	switch m.wrong {
	case "del-never":
		return errors.New("never")
	case "del-later":
		if m.first(args) {
			return errors.New("busy")
		}
	case "del-once":
		if !exists(args.Netns, args.IfName) {
			return errors.New("the interface is already deleted")
		}
	case "del-unknown-fails":
		if !slices.Contains(slices.Collect(maps.Values(m.leases())), types.GCAttachment{ContainerID: args.ContainerID, IfName: args.IfName}) {
			return types.NewError(types.ErrUnknownContainer, "unknown container", "")
		}
	case "del-needs-result":
		if m.config.PrevResult == nil && exists(args.Netns, args.IfName) {
			return errors.New("no prevResult")
		}
	case "del-needs-netns":
		if _, err := os.Stat(args.Netns); err != nil {
			return err
		}
	case "del-needs-link":
		if _, err := os.Stat(args.Netns); err == nil && !exists(args.Netns, args.IfName) && m.config.PrevResult != nil {
			return errors.New("the link is missing")
		}
	case "del-keeps-link":
		return nil
	case "del-takes-all":
		_ = withLink(args.Netns, "eth0", netlink.LinkDel)
	case "del-keeps-address":
		_ = withLink(args.Netns, args.IfName, netlink.LinkDel) // it may not exist
		return nil
	}
	_, err = m.bridge("DEL")
	return err
}

func (m *model) check(*skel.CmdArgs) error {
	switch m.wrong {
	case "check-passes":
		return nil
	case "check-fails":
		return errors.New("check failed")
	}
	_, err := m.bridge("CHECK")
	return err
}

// leases returns the leases of host-local: their files and owners.
func (m *model) leases() map[string]types.GCAttachment {
	all := map[string]types.GCAttachment{}
	dir := filepath.Join(m.config.IPAM.DataDir, m.config.Name)
	entries, _ := os.ReadDir(dir)
	for _, e := range entries {
		if net.ParseIP(e.Name()) == nil {
			continue
		}
		text, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if fields := strings.Fields(string(text)); err == nil && len(fields) == 2 {
			all[filepath.Join(dir, e.Name())] = types.GCAttachment{ContainerID: fields[0], IfName: fields[1]}
		}
	}
	return all
}

func (m *model) gc(*skel.CmdArgs) error {
	switch m.wrong {
	case "gc-keeps-all":
		return nil
	case "gc-fails":
		return errors.New("no garbage today")
	}
	for path, owner := range m.leases() {
		if m.fault("gc-takes-all") || !slices.Contains(m.config.Valid, owner) {
			_ = os.Remove(path)
		}
	}
	return nil
}

func (m *model) status(args *skel.CmdArgs) error {
	switch m.wrong {
	case "status-fine":
		return nil
	case "status-ill":
		return types.NewError(types.ErrPluginNotAvailable, "ill", "")
	}
	if _, err := invoke.FindInPath(m.config.IPAM.Type, filepath.SplitList(args.Path)); err != nil {
		return types.NewError(types.ErrPluginNotAvailable, err.Error(), "")
	}
	if m.config.Capacity > 0 && len(m.leases()) >= m.config.Capacity {
		return types.NewError(types.ErrPluginNotAvailable, "no address is left", "")
	}
	return nil
}

// allVersions are the versions that the plugins of this test report.
var allVersions = version.PluginSupports("0.3.1", "0.4.0", "1.0.0", "1.1.0")

// leasesMain is host-local, but also reports version 1.1.0.
func leasesMain() int {
	if os.Getenv("CNI_COMMAND") == "VERSION" {
		_ = allVersions.Encode(os.Stdout)
		return 0
	}
	path := filepath.Join(pluginDir, "host-local")
	_ = syscall.Exec(path, []string{path}, os.Environ())
	return 1
}

// chainedMain is a chained plugin that passes prevResult on, or drops it.
func chainedMain(pass bool) int {
	var config modelConfig
	switch os.Getenv("CNI_COMMAND") {
	case "VERSION":
		_ = allVersions.Encode(os.Stdout)
	case "ADD":
		if err := json.NewDecoder(os.Stdin).Decode(&config); err != nil {
			return 1
		}
		result := fmt.Appendf(nil, `{"cniVersion":%q}`, config.CNIVersion)
		if pass {
			result = config.PrevResult
		}
		_, _ = os.Stdout.Write(result)
	}
	return 0
}
