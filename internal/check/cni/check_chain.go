package cni

import (
	"bytes"
	"context"
	"crypto/sha512"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"

	types100 "github.com/containernetworking/cni/pkg/types/100"
	"github.com/containernetworking/cni/pkg/types/create"
)

// chainChecks ask whether the plugin gets on with others, and with another runtime.
var chainChecks = []check{
	{"chain-prev-result", "ADD Success", Must, "", chainPrevResult},
	{"cnitool", "Execution of Network Configurations", Must, "", withCNITool},
}

// chainPrevResult looks for the first plugin's interface and addresses in the
// result of the chain.
func chainPrevResult(t *trial) error {
	if len(t.list.Plugins) < 2 {
		return notApplicable("the list has one plugin")
	}
	p, r, err := t.up(eth0)
	if err != nil {
		return err
	}
	if len(r.Interfaces) == 0 || len(r.IPs) == 0 && t.ipam != "" {
		return fmt.Errorf("the chain's result has lost its interfaces or addresses: %+v", r)
	}
	if err := t.works(p, eth0, r); err != nil {
		return err
	}
	if err := t.delFrom(p, eth0); err != nil {
		return err
	}
	return t.empty(p)
}

// withCNITool adds, checks and deletes a pod by the project's own runtime.
func withCNITool(t *trial) error {
	if t.o.CNITool == "" {
		return notApplicable("no cnitool was given")
	}
	p, err := t.pod()
	if err != nil {
		return err
	}
	sum := sha512.Sum512([]byte(p.path))
	p.id = fmt.Sprintf("cnitool-%x", sum[:10]) // should its DEL fail
	t.touch(p, eth0)
	result, err := t.cnitool("add", p)
	if err != nil {
		return err
	}
	created, err := create.CreateFromBytes(result)
	if err != nil {
		return fmt.Errorf("read what cnitool has printed: %w: %s", err, brief(result))
	}
	r, err := types100.NewResultFromResult(created)
	if err != nil {
		return err
	}
	if err := errors.Join(verify(p, eth0, r), t.reach(p, r)); err != nil {
		return err
	}
	if !older(t.version, "0.4.0") {
		if _, err := t.cnitool("check", p); err != nil {
			return err
		}
	}
	if _, err := t.cnitool("del", p); err != nil {
		return err
	}
	return t.empty(p)
}

// cnitool runs the program with the network in a directory of its own.
func (t *trial) cnitool(command string, p *pod) ([]byte, error) {
	dir := filepath.Join(t.dir, "net.d")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	if err := os.WriteFile(filepath.Join(dir, "10-network.conflist"), t.list.Bytes, 0o600); err != nil {
		return nil, err
	}
	c := exec.CommandContext(context.WithoutCancel(t.ctx), t.o.CNITool, command, t.list.Name, p.path)
	c.Env = append(cleanEnviron(), "NETCONFPATH="+dir, "CNI_PATH="+strings.Join(t.path, string(os.PathListSeparator)))
	c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	var stdout, stderr bytes.Buffer
	c.Stdout, c.Stderr = &stdout, &stderr
	if err := c.Run(); err != nil {
		return nil, fmt.Errorf("cnitool %s: %w: %s", command, err, brief(append(stdout.Bytes(), stderr.Bytes()...)))
	}
	return stdout.Bytes(), nil
}
