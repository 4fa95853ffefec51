package qmp

import (
	"context"
	"fmt"
	"regexp"
	"strings"
)

// TAPs returns the TAPs that QEMU has opened by name, by the ID of their netdev. QMP has no
// command for it, so TAPs reads the monitor's "info network". Its lines name the IDs that
// the command line and netdev_add gave; a guest chooses nothing but MACs there.
func (c *Client) TAPs(ctx context.Context) (map[string]string, error) {
	var text string
	if err := c.Execute(ctx, "human-monitor-command", map[string]any{"command-line": "info network"}, &text); err != nil {
		return nil, fmt.Errorf("list netdevs: %w", err)
	}
	return parseNetwork(text), nil
}

// tapLine is a line such as " \ n0: index=0,type=tap,ifname=tap0,script=no,downscript=no".
var tapLine = regexp.MustCompile(`(\S+): index=\d+,type=tap,ifname=([^,]+),script=`)

func parseNetwork(text string) map[string]string {
	taps := map[string]string{}
	for line := range strings.Lines(text) {
		if m := tapLine.FindStringSubmatch(line); m != nil {
			taps[m[1]] = m[2]
		}
	}
	return taps
}

// NIC is a network device with its netdev.
type NIC struct {
	Netdev string // ID
	MAC    string // as configured; the guest may use another
}

// NICs lists the network devices: those with an ID, those without, and those that QEMU
// made for -nic and -net.
func (c *Client) NICs(ctx context.Context) (nics []NIC, err error) {
	for _, container := range []string{named, nameless, "/machine/unattached"} {
		nodes, err := c.children(ctx, container)
		if err != nil {
			return nil, err
		}
		for _, n := range nodes {
			if container == "/machine/unattached" && !strings.HasPrefix(n.Name, "device[") {
				continue // not a device
			}
			var nic NIC
			path := container + "/" + n.Name
			if c.Property(ctx, path, "netdev", &nic.Netdev) != nil || nic.Netdev == "" {
				if err := c.Err(); err != nil {
					return nil, err
				}
				continue // not a NIC, or unplugged since the list was made
			}
			if err := c.Property(ctx, path, "mac", &nic.MAC); err != nil {
				return nil, err
			}
			nics = append(nics, nic)
		}
	}
	return nics, nil
}
