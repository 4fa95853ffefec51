package cni

import (
	"bytes"
	"context"
	"crypto/sha512"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"

	types100 "github.com/containernetworking/cni/pkg/types/100"
	"github.com/containernetworking/cni/pkg/types/create"

	"unnest.io/unnest/internal/check"
)

// chainCases check that the plugin works with other plugins and with another runtime.
var chainCases = []testCase{
	{"chain-prev-result", "ADD Success", Must, "", chainPrevResult},
	{"cnitool", "Execution of Network Configurations", Must, "", withCNITool},
}

// chainPrevResult checks that the result of a chain still has the interface and the
// addresses of the first plugin.
func chainPrevResult(t *trial) {
	if len(t.list.Plugins) < 2 {
		check.Skip("the list has one plugin")
	}
	p, r := t.up(eth0)
	if len(r.Interfaces) == 0 || len(r.IPs) == 0 && t.ipam != "" {
		check.Failf("the result of the chain has no interfaces or no addresses: %+v", r)
	}
	t.works(p, eth0, r)
	t.delFrom(p, eth0)
	t.mustBeEmpty(p)
}

// withCNITool adds, checks and deletes a pod with cnitool, the runtime of the CNI project.
func withCNITool(t *trial) {
	if t.o.CNITool == "" {
		check.Skip("no cnitool was given")
	}
	p := t.pod()
	sum := sha512.Sum512([]byte(p.path))
	p.id = fmt.Sprintf("cnitool-%x", sum[:10]) // so that removePods can delete it if cnitool does not
	t.touch(p, eth0)
	text := t.cnitool("add", p)
	created, err := create.CreateFromBytes(text)
	if err != nil {
		check.Failf("read the output of cnitool: %w: %s", err, brief(text))
	}
	r := check.Get(types100.NewResultFromResult(created))
	check.Must(verify(p, eth0, r))
	check.Must(t.reach(t.ctx, p, r))
	if !older(t.version, "0.4.0") {
		t.cnitool("check", p)
	}
	t.cnitool("del", p)
	t.mustBeEmpty(p)
}

// cnitool runs cnitool, with the network in a configuration directory of its own.
func (t *trial) cnitool(command string, p *pod) []byte {
	dir := filepath.Join(t.dir, "net.d")
	check.Must(os.MkdirAll(dir, 0o700))
	check.Must(os.WriteFile(filepath.Join(dir, "10-network.conflist"), t.list.Bytes, 0o600))
	c := exec.CommandContext(context.WithoutCancel(t.ctx), t.o.CNITool, command, t.list.Name, p.path)
	c.Env = append(cleanEnviron(), "NETCONFPATH="+dir, "CNI_PATH="+strings.Join(t.path, string(os.PathListSeparator)))
	c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	var stdout, stderr bytes.Buffer
	c.Stdout, c.Stderr = &stdout, &stderr
	if err := c.Run(); err != nil {
		check.Failf("cnitool %s: %w: %s", command, err, brief(append(stdout.Bytes(), stderr.Bytes()...)))
	}
	return stdout.Bytes()
}
